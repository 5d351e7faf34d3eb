"""Every type of key, copied and caught up beside writers, on a database whose own settings would spoil the texts of its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.dialects.postgres.oracle import KEY_KINDS as SINGLE
from tests.dialects.postgres.stepping import rows
from tests.dialects.postgres.verbs import Begin
from tideshift.ddl.dialect import BuildGroup
from tideshift.errors import PlanRefused
from tideshift.store.keys import KeyRange

ROWS, WRITES = 30, 16
SETTINGS = {
    "extra_float_digits": "-10", "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "timezone": "Asia/Kolkata", "bytea_output": "escape",
    "default_transaction_isolation": "serializable", "statement_timeout": "20s", "idle_in_transaction_session_timeout": "15s",
}  # fmt: skip
ICU = "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@dataclass(frozen=True)
class Key:
    """The columns of a key, and SQL that gives the n-th key as a row, of which some have several texts."""

    columns: str
    names: str
    value: Callable[[int, int], str]
    first: str = "SELECT 1"
    icu: bool = False
    rows: int = ROWS


KEYS = {
    **{name: Key(f"k {kind.definition}", "k", lambda n, _, kind=kind: kind.value(n)) for name, kind in SINGLE.items()},
    "bool": Key("k bool", "k", lambda n, _: f"{n % 2 == 1}", rows=2),
    "name": Key("k name", "k", lambda n, _: f"'N{n}'"),
    "equal numbers of several texts": Key("k numeric", "k", lambda n, text: f"{n}.1{'0' * text}"),
    "equal intervals of several texts": Key("k interval", "k", lambda n, text: f"interval '{n} days {24 * text} hours' - interval '{text} days'"),
    "infinite dates": Key("k timestamptz", "k", lambda n, _: {3: "'infinity'", 4: "'-infinity'", 5: "'0044-03-15 12:00+00 BC'"}.get(n, f"timestamptz '2024-03-31 UTC' + {n} * interval '1 hour'")),
    "text of the server's collation": Key("k text", "k", lambda n, _: ("''", "' '", "'\\'", "'%s $1 :x'", "E'a\\nb'", "'😀'")[n] if n < 6 else f"'{'aBé'[n % 3]}{n}'"),
    "text by rules of a language": Key('k text COLLATE "de-x-icu"', "k", lambda n, _: f"'{'aAäb'[n % 4]}{n}'", icu=True),
    "text that is equal in any case": Key("k text COLLATE nocase", "k", lambda n, text: f"'{('key', 'KEY', 'Key')[text]}{n}'", first=ICU, icu=True),
    "two columns": Key("tenant int, at timestamptz", "tenant, at", lambda n, _: f"{n % 4}, timestamptz '2024-01-01 UTC' + {n} * interval '1 s'"),
    "text and time in another order than in the table": Key('at timestamptz, name text COLLATE "C"', "name, at", lambda n, _: f"'n{n % 5}', timestamptz '2024-01-01 UTC' + {n} * interval '1 s'"),
}


def write(random: Random, key: Key, table: str, n: int) -> str:
    """Return one statement of a writer; the same random numbers give the same statement for another table."""
    one, other = (key.value(random.randrange(key.rows + 10), random.randrange(3)) for _ in range(2))
    return random.choice((
        f"INSERT INTO {table} ({key.names}, c, d) VALUES ({one}, 'new {n}', {n}) ON CONFLICT DO NOTHING",
        f"INSERT INTO {table} ({key.names}, c, d) VALUES ({one}, 'put {n}', NULL) ON CONFLICT ({key.names}) DO UPDATE SET c = excluded.c",
        f"UPDATE {table} SET c = 'changed {n}', d = d + 1 WHERE ({key.names}) = ({one})", f"DELETE FROM {table} WHERE ({key.names}) = ({one})",
        f"UPDATE {table} SET ({key.names}) = ROW ({other}) WHERE ({key.names}) = ({one}) AND NOT EXISTS (SELECT 1 FROM {table} WHERE ({key.names}) = ({other}))",
    ))  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_rows_are_found_by_any_key(name: str, begin: Begin, postgres_url: str, seed: int) -> None:
    """Rows are cut, ordered, found and compared by the server alone: the copy equals a mirror written in the same transactions."""
    key, random = KEYS[name], Random(seed)
    labels = ", ".join(f"'m{n}'" for n in range(500))
    settings = "".join(f" EXECUTE format('ALTER DATABASE %I SET {one} = ''{value}''', current_database());" for one, value in SETTINGS.items())
    values = ", ".join(f"({key.value(n, 0)}, 'c', {n})" for n in random.sample(range(key.rows), key.rows))
    schema = (
        f"DO $$ BEGIN {settings} END $$; {key.first}; CREATE TYPE mood AS ENUM ({labels}); CREATE TABLE t ({key.columns}, c text, d int, PRIMARY KEY ({key.names}));"
        f" INSERT INTO t ({key.names}, c, d) VALUES {values}; CREATE TABLE mirror (LIKE t INCLUDING ALL); INSERT INTO mirror SELECT * FROM t"
    )
    if key.icu and rows(postgres_url, "SELECT 1 FROM pg_collation WHERE collname = 'de-x-icu'") == []:
        pytest.skip("this server was built without ICU")
    change = begin(schema, "ALTER TABLE t ALTER d TYPE bigint")

    def writes(count: int) -> None:
        for n in range(count):
            state = random.getstate()
            ours = write(random, key, "t", n)
            random.setstate(state)
            change.execute(f"BEGIN; {ours}; {write(random, key, 'mirror', n)}; COMMIT")

    change.install()
    low: Any = None
    while True:  # ends: each chunk begins behind the one before, and writers add few rows
        with change.writing() as tx:
            chunk = change.shadow.copy_chunk(tx, change.reorg, KeyRange(low, None), rows_max=7)
        if chunk.last is None:
            break
        low = chunk.last
        writes(WRITES // 8)
    change.build(BuildGroup.KEY)
    for _ in range(3):
        writes(WRITES // 4)
        change.apply(rows_max=3)
    change.build(*BuildGroup)
    assert change.differing() == []
    writes(WRITES // 4)
    change.swap()

    assert change.execute("SELECT t::text FROM t ORDER BY 1") == change.execute("SELECT m::text FROM mirror m ORDER BY 1")


def test_a_key_whose_columns_are_ordered_both_ways_is_not_used(begin: Begin) -> None:
    """Its ranges would be sorted anew for each chunk: another key is taken, or the change is refused."""
    mixed = "CREATE TABLE t (a int NOT NULL, b int NOT NULL, d int{more}); CREATE UNIQUE INDEX mixed ON t (a DESC, b)"
    with pytest.raises(PlanRefused, match="a table is copied by a key"):
        begin(mixed.format(more=""), "ALTER TABLE t ALTER d TYPE bigint")
    change = begin(f"DROP TABLE t; {mixed.format(more=', id int PRIMARY KEY')}", "ALTER TABLE t ALTER d TYPE bigint")

    assert change.designed.key_columns == ("id",)
