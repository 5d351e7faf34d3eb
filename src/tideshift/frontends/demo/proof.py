"""The proof: the shop must equal the model that the writers' own logs make, and its schema must differ by one word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tideshift.frontends.demo.activity import acknowledged
from tideshift.frontends.demo.operations import Model
from tideshift.frontends.demo.shop import open_shop, schema, schema_expected

__all__ = ["Finding", "prove", "rebuilt_model"]

EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """One thing that was compared: what, what was found, and how many differences there are."""

    what: str
    found: str
    differences: int = 0


def rebuilt_model(rows: int, log_paths: list[Path]) -> tuple[Model, int]:
    """Rebuild the shop from the first rows and the logs alone; return it with the number of operations."""
    model = Model.of(rows)
    return model, sum(model.replay(acknowledged(path)) for path in log_paths)


def prove(path: Path, *, rows: int, log_paths: list[Path], schema_before: Mapping[tuple[str, str], str | None]) -> list[Finding]:
    """Compare everything; the findings are in the order in which a person wants to read them."""
    model, operations = rebuilt_model(rows, log_paths)
    with closing(open_shop(path)) as connection:
        findings: list[Finding] = [
            _orders(connection, model, operations),
            _pairs(connection, "payments, kept by their foreign key", "SELECT order_id, id FROM payments", model.payments),
            _pairs(connection, "stock, kept by the trigger", "SELECT id, stock FROM products", model.stock),
            _types(connection),
            _schema(connection, schema_before),
            _checked(connection, "integrity_check", lambda lines: [] if lines == [("ok",)] else lines),
            _checked(connection, "foreign_key_check", lambda lines: lines),
        ]
    return findings


def _orders(connection: Any, model: Model, operations: int) -> Finding:
    present = {row[0]: (*row[1:4], _number(row[4]), *row[5:]) for row in connection.execute("SELECT * FROM orders")}
    finding = _compared("orders, row by row", present, model.orders)
    found = f"{len(present):,} rows against {operations:,} acknowledged statements{finding.found and ': ' + finding.found}"
    return Finding(finding.what, found, finding.differences)


def _pairs(connection: Any, what: str, query: str, expected: Mapping[int, int]) -> Finding:
    present = dict(connection.execute(query).fetchall())
    finding = _compared(what, present, expected)
    return Finding(what, finding.found or f"{len(present):,} of {len(expected):,}", finding.differences)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _compared(what: str, present: Mapping[int, Any], expected: Mapping[int, Any]) -> Finding:
    keys = present.keys() | expected.keys()
    differing = sorted(key for key in keys if present.get(key) != expected.get(key))
    examples = "; ".join(f"{key}: {present.get(key)} is not {expected.get(key)}" for key in islice(differing, EXAMPLES))
    return Finding(what, examples, len(differing))


def _types(connection: Any) -> Finding:
    counts = dict(connection.execute("SELECT typeof(amount_cents), count(*) FROM orders GROUP BY 1").fetchall())
    wrong = sum(count for kind, count in counts.items() if kind != "integer")
    return Finding("amounts stored as numbers", ", ".join(f"{count:,} {kind}" for kind, count in counts.items()), wrong)


def _schema(connection: Any, before: Mapping[tuple[str, str], str | None]) -> Finding:
    present, expected = schema(connection), schema_expected(dict(before))
    differing = sorted(key for key in present.keys() | expected.keys() if present.get(key, "") != expected.get(key, ""))
    found = ", ".join(" ".join(key) for key in differing[:EXAMPLES]) or f"{len(present)} objects, byte for byte but for the type"
    return Finding("schema", found, len(differing))


def _checked(connection: Any, pragma: str, wrong: Callable[[list[tuple[Any, ...]]], list[Any]]) -> Finding:
    lines = wrong(connection.execute(f"PRAGMA {pragma}").fetchall())
    return Finding(pragma.replace("_", " "), "ok" if not lines else str(lines[0]), len(lines))
