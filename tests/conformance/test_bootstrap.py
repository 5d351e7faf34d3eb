"""Installing, upgrading, removing and recognising the system tables, on each database."""

import threading

import pytest
from sqlalchemy import update
from sqlalchemy.schema import DropTable

from tests.databases import in_columns, opened
from tideshift.errors import NoSystemTables, VersionMismatch
from tideshift.store import bootstrap, events
from tideshift.store.bootstrap import SystemState, UpgradeStep, next_ids
from tideshift.store.tables import METADATA, event, owner_lease, system_version


def set_version(database, version):
    with database.transaction() as tx:
        tx.execute(update(system_version).values(version=version))


def test_bootstrap_makes_every_table_once(database):
    """The first call creates, the second finds everything."""
    assert bootstrap.state(database) is SystemState.ABSENT
    assert bootstrap.bootstrap(database) is True
    assert bootstrap.bootstrap(database) is False

    assert bootstrap.state(database) is SystemState.CURRENT
    bootstrap.require(database)


def test_tables_have_the_columns_of_their_definition(system):
    """Every table exists with its columns in their order."""
    with system.transaction() as tx:
        existing = system.driver.existing_tables(tx.connection)
        columns = {
            table.name: system.driver.existing_columns(tx.connection, table.name) for table in METADATA.sorted_tables
        }

    assert existing == set(columns)
    assert columns == {table.name: [column.name for column in table.columns] for table in METADATA.sorted_tables}


def test_nothing_is_asked_of_a_database_without_tables(database):
    """Without system tables the answer is how to make them."""
    with pytest.raises(NoSystemTables) as caught:
        bootstrap.require(database)

    assert "init" in caught.value.hint


def test_a_missing_table_is_noticed_and_made(system):
    """A table that somebody dropped makes the state partial, and bootstrap mends it without touching the rest."""
    with system.transaction() as tx:
        next_ids(tx, "job", 5)
        tx.execute(DropTable(owner_lease))

    assert bootstrap.state(system) is SystemState.PARTIAL
    with pytest.raises(NoSystemTables):
        bootstrap.require(system)
    assert bootstrap.bootstrap(system) is True
    with system.transaction() as tx:
        assert next_ids(tx, "job", 1) == range(6, 7)


@pytest.mark.parametrize(("version", "state"), [(0, SystemState.OLDER), (99, SystemState.NEWER)])
def test_another_version_is_refused(system, version, state):
    """Tables of an older or newer version are neither used nor changed."""
    set_version(system, version)

    assert bootstrap.state(system) is state
    with pytest.raises(VersionMismatch):
        bootstrap.require(system)
    with pytest.raises(VersionMismatch):
        bootstrap.bootstrap(system)


def add_column_once(name):
    def apply(tx):
        if name not in tx.driver.existing_columns(tx.connection, "event"):
            table = tx.connection.dialect.identifier_preparer.format_table(event)
            tx.connection.exec_driver_sql(
                f"ALTER TABLE {table.replace('tideshift.', tx_prefix(tx))} ADD COLUMN {name} integer"
            )

    return apply


def tx_prefix(tx):
    return "tideshift_" if tx.driver.name == "sqlite" else "tideshift."


STEPS = (
    UpgradeStep(version=2, why="adds one", apply=add_column_once("one")),
    UpgradeStep(version=3, why="adds two", apply=add_column_once("two")),
)


def test_upgrade_goes_step_by_step(system):
    """Each step is taken once, in order, and the version row tells how far."""
    first = bootstrap.upgrade(system, steps=STEPS[:1], target=2)
    rest = bootstrap.upgrade(system, steps=STEPS, target=3)
    again = bootstrap.upgrade(system, steps=STEPS, target=3)

    with system.transaction() as tx:
        columns = system.driver.existing_columns(tx.connection, "event")
    assert (first, rest, again) == ([2], [3], [])
    assert columns[-2:] == ["one", "two"]


def test_a_step_that_fails_is_taken_again(system):
    """A step that broke half-way leaves its version unreached; the next upgrade finishes it."""

    def broken(tx):
        STEPS[1].apply(tx)
        raise OSError("pulled the plug")

    with pytest.raises(OSError, match="plug"):
        bootstrap.upgrade(system, steps=(STEPS[0], UpgradeStep(version=3, why="breaks", apply=broken)), target=3)
    rest = bootstrap.upgrade(system, steps=STEPS, target=3)

    assert rest == [3]


def test_steps_with_a_gap_are_a_mistake_of_ours(system):
    """Versions are numbered without gaps and never used twice."""
    with pytest.raises(AssertionError):
        bootstrap.upgrade(system, steps=STEPS[1:], target=3)


def test_upgrade_without_tables_is_refused(database):
    """There must be something to upgrade."""
    with pytest.raises(NoSystemTables):
        bootstrap.upgrade(database, steps=STEPS, target=3)


def test_uninstall_removes_ours_and_leaves_theirs(system):
    """After uninstall there is nothing of ours, and the user's table stands."""
    q = in_columns(system.driver, "tideshift_notes")
    with system.transaction() as tx:
        tx.run_verbatim(q("CREATE TABLE {table} (id integer)"))

    assert bootstrap.uninstall(system) is True

    assert bootstrap.state(system) is SystemState.ABSENT
    assert bootstrap.uninstall(system) is False
    with system.transaction() as tx:
        assert tx.run_verbatim(q("SELECT count(*) FROM {table}")).scalar() == 0
    assert bootstrap.bootstrap(system) is True


def test_a_copied_database_is_recognised_until_adopted(system):
    """When the identity differs from the stored one both are told, until somebody adopts it."""
    assert bootstrap.installation_changed(system) is None
    with system.transaction() as tx:
        present = system.driver.installation(tx.connection)
        tx.execute(update(system_version).values(installation={"elsewhere": "yes"}))

    assert bootstrap.installation_changed(system) == ({"elsewhere": "yes"}, present)
    bootstrap.adopt(system)
    assert bootstrap.installation_changed(system) is None


def test_ids_are_counted_per_kind(system):
    """Each kind has its own counter from 1, without gaps."""
    with system.transaction() as tx:
        taken = [next_ids(tx, "job", 2), next_ids(tx, "job", 1), next_ids(tx, "task", 1), next_ids(tx, "subtask", 3)]

    assert taken == [range(1, 3), range(3, 4), range(1, 2), range(1, 4)]


def test_ids_of_a_rolled_back_transaction_are_given_again(system):
    """A counter is part of the transaction, so there are no gaps and no late visibility."""
    with pytest.raises(ZeroDivisionError), system.transaction() as tx:  # noqa: PT012
        next_ids(tx, "job", 10)
        raise ZeroDivisionError

    with system.transaction() as tx:
        assert next_ids(tx, "job", 1) == range(1, 2)


def test_ids_without_tables_are_refused(database):
    """A counter that is not there is a missing installation, however the database says so."""
    bootstrap.bootstrap(database)
    with database.transaction() as tx:
        tx.execute(system_version.delete())

    with pytest.raises(NoSystemTables), database.transaction() as tx:
        next_ids(tx, "job", 1)


def test_two_threads_never_get_the_same_id(system):
    """Ids taken at the same time differ, and all of them are used."""
    taken = []

    def take():
        for _ in range(50):
            system.run(lambda tx: taken.extend(next_ids(tx, "task", 2)))

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == list(range(1, 201))


def test_ids_become_visible_in_order(system):
    """Whoever takes the next id waits until the one before it is committed, so a reader never sees a later one first."""
    order = []
    has_taken, may_commit = threading.Event(), threading.Event()

    def first():
        with system.transaction() as tx:
            (job_id,) = next_ids(tx, "job", 1)
            events.record(tx, actor="a", kind="job", job_id=job_id)
            has_taken.set()
            assert may_commit.wait(10)
            order.append(job_id)

    def second():
        with system.transaction() as tx:
            (job_id,) = next_ids(tx, "job", 1)
            order.append(job_id)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert has_taken.wait(10)
    threads[1].start()
    with system.transaction(write=False) as tx:
        assert events.history(tx, job_id=1) == []
        assert events.history(tx, job_id=2) == []
    may_commit.set()
    for thread in threads:
        thread.join()

    assert order == [1, 2]


def test_two_bootstraps_at_once_make_one_installation(database_url):
    """Of two processes that install at the same time one creates, and neither fails."""
    created = []
    barrier = threading.Barrier(2)

    def install():
        with opened(database_url) as database:
            barrier.wait()
            created.append(bootstrap.bootstrap(database))

    threads = [threading.Thread(target=install) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(created) == [False, True]
