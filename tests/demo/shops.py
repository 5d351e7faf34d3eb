"""A shop whose change is already made, with the logs of the writers that used it: what the proof compares."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tideshift.frontends.demo.operations import Chooser, execute
from tideshift.frontends.demo.proof import Finding, prove
from tideshift.frontends.demo.shop import build, open_shop, schema

ROWS = 1_000
OPERATIONS = 600
WRITERS = 2


@dataclass(frozen=True)
class ChangedShop:
    """The file, the logs, and the schema before the change."""

    path: Path
    log_paths: list[Path]
    schema_before: dict[tuple[str, str], str | None]

    def findings(self) -> dict[str, Finding]:
        """Prove, and return each finding by the first word of what was compared."""
        findings = prove(self.path, rows=ROWS, log_paths=self.log_paths, schema_before=self.schema_before)
        return {finding.what.split()[0].rstrip(","): finding for finding in findings}

    def run(self, *statements: str) -> None:
        """Execute statements on the shop that no log tells of."""
        with closing(open_shop(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)


def changed_shop(folder: Path, random: Random) -> ChangedShop:
    """Build a shop, let writers use it before and after its column's type is changed, by hand."""
    path = folder / "shop.db"
    build(path, ROWS)
    log_paths = [folder / f"writer{number}.log" for number in range(WRITERS)]
    choosers = [Chooser(random, rows=ROWS, writer=number, writers=WRITERS) for number in range(WRITERS)]
    with closing(open_shop(path)) as connection:
        before = schema(connection)
        _write(connection, choosers, log_paths)
    _change_by_hand(path)
    with closing(open_shop(path)) as connection:
        _write(connection, choosers, log_paths)
    return ChangedShop(path, log_paths, before)


def _write(connection, choosers, log_paths) -> None:
    for chooser, log_path in zip(choosers, log_paths, strict=True):
        with log_path.open("a") as log:
            for _ in range(OPERATIONS):
                operation = chooser.next()
                execute(connection, operation)
                chooser.done(operation)
                log.write(json.dumps([0.0, 0.0, operation]) + "\n")


def _change_by_hand(path: Path) -> None:
    with closing(open_shop(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'amount_cents TEXT', 'amount_cents INTEGER')")
        connection.execute("PRAGMA writable_schema = RESET")
    with closing(open_shop(path)) as connection:
        connection.execute("UPDATE orders SET amount_cents = CAST(amount_cents AS INTEGER)")
