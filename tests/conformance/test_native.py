"""Changes in one short transaction: the protocol Native, on each dialect."""

import pytest

from tests.conformance.planned import ROWS, TO_TEXT
from tideshift.ddl.dialect import Strategy
from tideshift.dialects import points
from tideshift.errors import SchemaChanged, ValueRefused
from tideshift.store import points as store_points

ADD, INDEX = "ALTER TABLE t ADD COLUMN e integer DEFAULT 7", "CREATE UNIQUE INDEX t_c ON t (c)"
CHANGES = {"added": (ADD, Strategy.INSTANT), "indexed": (INDEX, Strategy.DIRECT), "rebuilt": (TO_TEXT, Strategy.DIRECT)}


@pytest.fixture(params=CHANGES)
def change(request, plan):
    """A planned change in one transaction, of each kind."""
    statement, strategy = CHANGES[request.param]
    return plan(statement=statement, strategy=strategy)


def carry_out(change):
    with change.writing() as tx:
        change.native.change(tx, change.reorg)


def portrait(change):
    """Everything of the table that any of the changes could touch, and all that is ours."""
    return change.columns(), change.indexes(), change.rows(), change.tables(), change.objects()


def test_the_change_is_carried_out_as_a_whole(change):
    """Afterwards the catalogue shows it, another connection finds it as planned, and every row has its values."""
    before = change.rows()

    carry_out(change)

    with change.database.session() as session:
        change.native.inspect(session, change.reorg)
    added, indexed = change.designed.strategy is Strategy.INSTANT, "t_c" in change.indexes()
    names = {name: type_text for name, type_text, _ in change.columns()}
    assert names["c"] == ("integer" if added or indexed else "text")
    assert ("e" in names) == added
    assert change.rows() == (before if added or indexed else change.changed(before))


def test_what_stays_behind_is_named_before(change):
    """An artifact is known before it is made, its name is ours, and nothing else of ours is left."""
    named = {artifact.name for artifact in change.native.artifacts(change.reorg)}
    tables = change.tables()
    assert not named & tables

    carry_out(change)

    assert change.tables() == tables | named
    assert change.objects() == named


def test_what_stays_behind_can_be_purged(change):
    """The replaced table is emptied a few rows at a time and dropped, like a job's old table."""
    carry_out(change)

    for artifact in change.native.artifacts(change.reorg):
        for _ in range(2 * ROWS):
            with change.writing() as tx:
                if change.dialect.remains.empty_chunk(tx, artifact, rows_max=5) == 0:
                    break
        with change.writing() as tx:
            change.dialect.remains.drop(tx, artifact)
    assert change.objects() == set()


@pytest.mark.parametrize("point", [points.CHANGE, points.CHANGED])
def test_a_fault_leaves_nothing(change, failpoints, point):
    """All or nothing: wherever it strikes, the table, its rows and the catalogue are as before."""
    if not change.database.driver.capabilities.transactional_ddl:
        pytest.skip("this database commits DDL by itself")
    before = portrait(change)
    failpoints.enable(point, "1*raise(RuntimeError)")

    with pytest.raises(RuntimeError):
        carry_out(change)

    assert portrait(change) == before
    carry_out(change)


def test_a_statement_that_fails_leaves_nothing(change, failpoints):
    """The n-th statement fails, for every n until the change gets through: it is never half done."""
    if not change.database.driver.capabilities.transactional_ddl:
        pytest.skip("this database commits DDL by itself")
    before = portrait(change)

    for number in range(1_000):
        failpoints.enable(store_points.BEFORE_STATEMENT, f"skip({number}) 1*raise(RuntimeError)", may_miss=True)
        try:
            carry_out(change)
        except RuntimeError:
            failpoints.disable(store_points.BEFORE_STATEMENT)
            assert portrait(change) == before, f"statement {number + 1}"
        else:
            break
    failpoints.disable(store_points.BEFORE_STATEMENT)
    assert number > 1
    assert portrait(change) != before


def test_a_table_that_has_changed_is_refused(change):
    """What was planned for another table than the one that is there now is not carried out at all."""
    change.run("ALTER TABLE {table} ADD COLUMN f integer")
    before = portrait(change)

    with pytest.raises(SchemaChanged):
        carry_out(change)

    assert portrait(change) == before


@pytest.mark.parametrize(("name", "spoil"), [("rebuilt", "UPDATE {table} SET c = NULL WHERE k = 5"), ("indexed", "UPDATE {table} SET c = 10 WHERE k = 5")])
def test_a_row_that_does_not_fit_is_named(plan, name, spoil):
    """A row that the new shape refuses ends the change with its key or its values, and nothing is changed."""
    statement, strategy = CHANGES[name]
    change = plan(statement=statement, strategy=strategy)
    change.run(spoil)
    before = portrait(change)

    with pytest.raises(ValueRefused) as refused:
        carry_out(change)

    assert refused.value.fields.get("key") or refused.value.fields.get("values")
    assert portrait(change) == before


def test_an_inspection_sees_what_is_not_as_planned(change):
    """Before the change, and after somebody else's, another connection finds the catalogue otherwise."""
    with change.database.session() as session, pytest.raises(SchemaChanged):
        change.native.inspect(session, change.reorg)
    carry_out(change)
    change.run("DROP INDEX t_c" if "t_c" in change.indexes() else "ALTER TABLE {table} RENAME COLUMN c TO other")

    with change.database.session() as session, pytest.raises(SchemaChanged):
        change.native.inspect(session, change.reorg)
