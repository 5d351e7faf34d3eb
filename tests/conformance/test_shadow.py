"""The life of a shadow table, from its names to its end: the protocol Shadow, on each dialect.

What becomes of rows between `install` and `swap` is in test_shadow_rows.py.
"""

from itertools import pairwise

import pytest

from tests.conformance.planned import ROWS
from tests.databases import in_columns
from tideshift.ddl.dialect import SHADOW_INDEX, ArtifactName
from tideshift.dialects import points
from tideshift.errors import SchemaChanged
from tideshift.store import points as store_points

ATTACHED = (
    "CREATE INDEX t_c ON {table} (c)",
    "CREATE TABLE child (id integer PRIMARY KEY, t integer REFERENCES {table} (k))",
    "INSERT INTO child VALUES (1, 1)",
    "CREATE VIEW seen AS SELECT k, d FROM {table}",
)


def artifact_of(change, kind):
    return next(made for made in change.artifacts if made.kind == kind)


def swap(change):
    with change.writing() as tx:
        change.shadow.swap(tx, change.reorg)


def drop(change, artifact):
    with change.writing() as tx:
        change.dialect.remains.drop(tx, artifact)


def check(change):
    with change.reading() as tx:
        change.shadow.check(tx, change.reorg)


# ── installing ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_artifacts_are_named_in_the_order_of_making(planned, failpoints):
    """At any moment of an installation what is there is the beginning of the list, so that undoing it backwards is right."""
    listed = [made.name for made in planned.artifacts if made.kind != SHADOW_INDEX]
    seen, at_work = [], []

    def look(**_):
        if at_work:
            tx = at_work.pop()  # looking takes statements too, and they are not looked at
            found = {name for _, name in planned.catalog.objects(tx)}
            seen.append([name for name in listed if name in found])
            at_work.append(tx)

    failpoints.enable(store_points.AFTER_STATEMENT, call=look)
    with planned.writing() as tx:
        at_work.append(tx)
        planned.shadow.install(tx, planned.reorg)
        at_work.clear()

    complete = seen[-1]
    assert len(complete) > 2
    assert all(found == complete[: len(found)] for found in seen)


def test_an_installation_leaves_the_table_alone(planned):
    """The shadow is there, empty and in the new shape; the table keeps its shape and its rows."""
    columns, rows = planned.columns(), planned.rows()

    planned.install()

    shadow = planned.named("shadow")
    assert planned.rows(shadow) == []
    assert [(name, "text", True) if name == "c" else (name, kind, required) for name, kind, required in columns] == planned.columns(shadow)
    assert (planned.columns(), planned.rows()) == (columns, rows)
    assert planned.backlog() == 0
    check(planned)


def test_an_installation_is_all_or_nothing(planned, failpoints):
    """A fault at its very end leaves no object, and writes are not recorded."""
    if not planned.database.driver.capabilities.transactional_ddl:
        pytest.skip("this database commits DDL by itself")
    failpoints.enable(points.INSTALLED, "1*raise(RuntimeError)")

    with pytest.raises(RuntimeError):
        planned.install()

    assert planned.objects() == set()
    planned.add(ROWS + 1)
    planned.install()


def test_a_table_that_has_changed_is_refused(planned):
    """A column that came since the plan was made ends the installation, and nothing is left of it."""
    planned.run("ALTER TABLE {table} ADD COLUMN e integer")

    with pytest.raises(SchemaChanged):
        planned.install()

    assert planned.objects() == set()


WRITES = {
    "insert": ("INSERT INTO {table} (k, c, d) VALUES (100, 1, 'new')", 1),
    "update": ("UPDATE {table} SET c = c + 1 WHERE k <= 3", 3),
    "key": ("UPDATE {table} SET k = k + 100 WHERE k = 2", 1),
    "delete": ("DELETE FROM {table} WHERE k IN (1, 2)", 2),
    "none": ("UPDATE {table} SET c = 0 WHERE k > 1000", 0),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_is_recorded_and_none_is_disturbed(plan, name):
    """A statement meets as many rows as without a job and writes nothing but its own; what it touched waits in the log."""
    statement, rows = WRITES[name]
    change = plan()
    change.install()

    affected = change.run(statement)

    assert affected == rows
    assert change.rows(change.named("shadow")) == []
    assert rows <= change.backlog() <= 2 * rows


def test_a_write_that_is_taken_back_is_not_recorded(plan):
    """The log belongs to the application's transaction."""
    change = plan()
    change.install()

    with pytest.raises(RuntimeError), change.writing() as tx:  # noqa: PT012
        tx.run_verbatim(change.in_t("UPDATE {table} SET c = 0"))
        raise RuntimeError

    assert change.backlog() == 0


def test_a_value_that_the_new_shape_refuses_is_written_all_the_same(plan):
    """The application never fails because of a job."""
    change = plan()
    change.install()

    assert change.run("UPDATE {table} SET c = NULL WHERE k = 3") == 1


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────────

DAMAGE = {
    "the table has another column": "ALTER TABLE {table} ADD COLUMN e integer",
    "the shadow has another column": "ALTER TABLE {shadow} ADD COLUMN e integer",
    "the log is gone": "log",
    "the shadow is gone": "shadow",
    "a trigger is gone": "trigger",
}


def damage(change, what):
    if what in ("log", "shadow", "trigger"):
        drop(change, artifact_of(change, what))
    else:
        change.run(what.replace("{shadow}", change.written("shadow")))


@pytest.mark.parametrize("what", DAMAGE.values(), ids=DAMAGE)
def test_a_check_sees_what_is_not_as_recorded(installed, what):
    """Whatever somebody did to source, shadow, log or triggers is seen, after a check that found all well too."""
    check(installed)
    damage(installed, what)

    with pytest.raises(SchemaChanged):
        check(installed)


def test_a_check_lets_the_application_be(installed):
    """Rows may change, and other tables come and go."""
    installed.run("CREATE TABLE other (id integer)", "UPDATE {table} SET c = c + 1", "DROP TABLE other")

    check(installed)


# ── swapping ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_swap_puts_the_new_shape_in_place(copied):
    """The table has its new type and all rows; capture is gone; the artifact `shadow` holds the old rows."""
    before = copied.rows()

    swap(copied)

    with copied.database.session() as session:
        copied.shadow.inspect_swapped(session, copied.reorg)
    assert ("c", "text", True) in copied.columns()
    assert copied.rows() == copied.changed(before)
    assert copied.rows(copied.named("shadow")) == before
    assert copied.objects() == {copied.named("shadow")}
    copied.add(ROWS + 1)
    assert copied.rows(copied.named("shadow")) == before


def test_a_swap_keeps_what_is_attached(plan):
    """Indexes, views and the references of other tables are the same afterwards, and point at the new rows."""
    change = plan(around=ATTACHED)
    indexes = change.indexes()
    change.install()
    change.copy()

    swap(change)

    assert "t_c" in indexes
    assert change.indexes() == indexes
    change.run("UPDATE {table} SET d = 'seen now' WHERE k = 1")
    with change.reading() as tx:
        seen = in_columns(change.database.driver, "seen")("SELECT d FROM {table} WHERE k = 1")
        assert tx.run_verbatim(seen).scalar() == "seen now"
    assert change.references("child") == [("t", ["k"])]


def test_a_swap_asks_for_an_empty_log(copied):
    """With a change that is not applied nothing is swapped."""
    copied.add(ROWS + 1)
    columns = copied.columns()

    with pytest.raises(AssertionError):
        swap(copied)

    assert copied.columns() == columns
    assert copied.backlog() > 0
    check(copied)


@pytest.mark.parametrize("what", DAMAGE.values(), ids=DAMAGE)
def test_a_swap_refuses_what_is_not_as_recorded(copied, what):
    """The table that is there stays there."""
    damage(copied, what)
    columns, rows = copied.columns(), copied.rows()

    with pytest.raises(SchemaChanged):
        swap(copied)

    assert (copied.columns(), copied.rows()) == (columns, rows)


@pytest.mark.parametrize("point", [points.SWAP_BEGIN, points.SWAP_EXCHANGE, points.SWAP_EXCHANGED, points.SWAPPED])
def test_a_swap_is_all_or_nothing(copied, failpoints, point):
    """A fault anywhere in it leaves the old table in place and capture in force, and the next try gets through."""
    if not copied.dialect.capabilities.transactional_swap:
        pytest.skip("the swap of this database is no transaction")
    columns, rows = copied.columns(), copied.rows()
    failpoints.enable(point, "1*raise(RuntimeError)")

    with pytest.raises(RuntimeError):
        swap(copied)

    assert (copied.columns(), copied.rows()) == (columns, rows)
    check(copied)
    copied.add(ROWS + 1)
    assert copied.backlog() > 0
    copied.apply()
    swap(copied)


def test_an_inspection_sees_what_is_not_as_planned(copied):
    """Before the swap, and after somebody changed the swapped table, another connection finds the catalogue otherwise."""
    with copied.database.session() as session, pytest.raises(SchemaChanged):
        copied.shadow.inspect_swapped(session, copied.reorg)
    swap(copied)
    copied.run("ALTER TABLE {table} ADD COLUMN e integer")

    with copied.database.session() as session, pytest.raises(SchemaChanged):
        copied.shadow.inspect_swapped(session, copied.reorg)


# ── emptying and dropping ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_is_emptied_a_few_rows_at_a_time(copied):
    """No call deletes more rows than it may, and the first that finds none says 0; warming up changes nothing."""
    if not copied.dialect.capabilities.empties_tables:
        pytest.skip("this database drops a large table in a moment")
    swap(copied)
    shadow, left = artifact_of(copied, "shadow"), [ROWS]

    for _ in range(4 * ROWS):
        with copied.reading() as tx:
            copied.dialect.remains.warm_up(tx, shadow)
        assert len(copied.rows(shadow.name)) == left[-1]
        with copied.writing() as tx:
            gone = copied.dialect.remains.empty_chunk(tx, shadow, rows_max=5)
        left.append(len(copied.rows(shadow.name)))
        if gone == 0:
            break

    assert left[-2:] == [0, 0]
    assert all(0 <= before - after <= 5 for before, after in pairwise(left))
    assert len(copied.rows()) == ROWS


def test_what_is_gone_is_empty_and_can_be_dropped(installed):
    """Undoing begins anew after a crash: one artifact after another, twice, and some that were never made."""
    never = [ArtifactName(made.kind, made.name.replace("_7_", "_9_", 1)) for made in installed.artifacts]

    for artifact in [*reversed(installed.artifacts), *reversed(installed.artifacts), *never]:
        drop(installed, artifact)
    for artifact in (artifact_of(installed, "shadow"), never[0]):
        with installed.reading() as tx:
            assert installed.dialect.remains.warm_up(tx, artifact) is False
        with installed.writing() as tx:
            assert installed.dialect.remains.empty_chunk(tx, artifact, rows_max=5) == 0

    assert installed.objects() == set()
    assert len(installed.rows()) == ROWS
    installed.add(ROWS + 1)


@pytest.mark.parametrize("verb", ["empty_chunk", "drop"])
def test_a_table_of_the_users_is_never_emptied_or_dropped(planned, verb):
    """A name that is not ours is a mistake of ours, and costs nobody a row."""
    options = {"rows_max": 5} if verb == "empty_chunk" else {}

    with pytest.raises(AssertionError), planned.writing() as tx:
        getattr(planned.dialect.remains, verb)(tx, ArtifactName("shadow", "t"), **options)

    assert len(planned.rows()) == ROWS
