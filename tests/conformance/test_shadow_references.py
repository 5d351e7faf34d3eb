"""Foreign keys that a change by a shadow table brings: the protocol Shadow, where a dialect looks at references itself."""

import json

import pytest

from tests.conformance.planned import ROWS
from tideshift.errors import PlanRefused, SchemaChanged, TideshiftError, ValueRefused

REFERS = "ALTER TABLE t ADD CONSTRAINT has_parent FOREIGN KEY (c) REFERENCES parent (id)"
PARENTS = (
    "CREATE TABLE parent (id integer PRIMARY KEY)",
    f"INSERT INTO parent VALUES {', '.join(f'({n * 10})' for n in range(1, ROWS + 1))}",
)


@pytest.fixture
def referring(plan):
    """A change that makes the table refer to another one, with all rows copied."""
    try:
        change = plan(statement=REFERS, around=PARENTS)
    except PlanRefused:
        pytest.skip("this database adds a reference without a copy of the table")
    change.install()
    change.copy()
    return change


def see_references(change, *, rows_max, swapped=False):
    """Look at every reference; return how often it came to something further."""
    seen, looks = None, 0
    while True:  # ends: each look goes on behind the one before
        with change.reading() as tx:
            seen = change.shadow.see_references(tx, change.reorg, seen, rows_max=rows_max, swapped=swapped)
        if seen is None:
            return looks
        seen = json.loads(json.dumps(seen))
        looks += 1


def test_references_are_looked_at_a_few_rows_at_a_time(referring):
    """Before and after the swap; how far a look came can be stored and taken up again."""
    assert referring.stored.sees_references
    assert see_references(referring, rows_max=5) >= ROWS // 5
    with referring.writing() as tx:
        referring.shadow.swap(tx, referring.reorg)

    assert see_references(referring, rows_max=5, swapped=True) >= ROWS // 5


def test_a_row_without_its_parent_is_named(referring):
    """Before the swap the change is refused, with the key of the row that refers to nothing."""
    referring.run("UPDATE {table} SET c = 11 WHERE k = 8")
    referring.apply()

    with pytest.raises(ValueRefused) as refused:
        see_references(referring, rows_max=5)

    assert refused.value.fields["key"] == referring.bound(8)


def test_a_reference_that_breaks_later_is_seen_after_the_swap(referring):
    """It is too late to refuse then: the error says that the schema is not what was planned."""
    with referring.writing() as tx:
        referring.shadow.swap(tx, referring.reorg)
    if not breaks(referring):
        pytest.skip("this database keeps a reference from breaking")

    with pytest.raises(SchemaChanged):
        see_references(referring, rows_max=5, swapped=True)


def breaks(change):
    """Take a parent away, where the database lets one."""
    try:
        return change.run("DELETE FROM parent WHERE id = 80") == 1
    except TideshiftError:
        return False
