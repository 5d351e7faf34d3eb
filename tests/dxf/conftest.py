"""What every scenario of the framework stands on: a stepped database, two tables of rows, and a cluster."""

import pytest
from sqlalchemy import delete, update

from tests.conftest import DATABASES
from tests.databases import in_columns, opened
from tests.dxf.moves import shared_url
from tideshift.clock import SteppedClock
from tideshift.dxf.commands import Dxf
from tideshift.dxf.tasktype import Registry
from tideshift.store import bootstrap, events
from tideshift.store.tables import METADATA, system_version
from tideshift.testing.cluster import Cluster
from tideshift.testing.sample import CopyRows, sample_meta


@pytest.fixture(scope="module", params=DATABASES)
def database_url(request, tmp_path_factory):
    """The URL of a database that the tests of a module use one after another, on every database that we speak."""
    with shared_url(request, tmp_path_factory.mktemp("dxf")) as url:
        yield url


@pytest.fixture
def clock():
    """A clock that only the test and its cluster move, for the database's time too."""
    return SteppedClock()


@pytest.fixture
def database(database_url, clock):
    """An open database with system tables as if just installed, whose time is the stepped clock's."""
    with opened(database_url, clock) as database:
        if not bootstrap.bootstrap(database):
            empty(database)
        yield database


def empty(database):
    """Take away what the test before has left: rows, the user's tables, and the numbers that were given."""
    names = in_columns(database.driver, "source")("{table}"), in_columns(database.driver, "target")("{table}")
    with database.transaction() as tx:
        for table in set(METADATA.sorted_tables) - {system_version}:
            tx.execute(delete(table))
        tx.execute(update(system_version).values(next_job_id=1, next_task_id=1, next_subtask_id=1))
        for name in names:
            tx.run_verbatim(f"DROP TABLE IF EXISTS {name}")


class Rows:
    """A source table with the ids 1 to `number`, and an empty target without any key."""

    def __init__(self, database, number):
        self.database = database
        self.number = number
        self.source, self.target = (in_columns(database.driver, name)("{table}") for name in ("source", "target"))
        self.run(f"CREATE TABLE {self.source} (id integer PRIMARY KEY, n integer NOT NULL)")
        self.run(f"CREATE TABLE {self.target} (id integer NOT NULL, n integer NOT NULL)")
        count = f"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {number})"
        self.run(f"INSERT INTO {self.source} {count} SELECT i, i * 10 FROM c")

    def run(self, sql):
        with self.database.transaction() as tx:
            return tx.run_verbatim(sql).rows

    def copied(self):
        """How many rows arrived, and how many different ones: unequal when one was copied twice."""
        return self.run(f"SELECT count(*), count(DISTINCT id) FROM {self.target}")[0]

    def exactly_once(self):
        """Whether the target holds every row of the source, each once."""
        differing = f"SELECT count(*) FROM {self.source} s LEFT JOIN {self.target} t ON t.id = s.id AND t.n = s.n WHERE t.id IS NULL"
        return self.copied() == (self.number, self.number) and self.run(differing) == [(0,)]

    def spoil(self, row_id):
        """Make a row that the sample type refuses."""
        self.run(f"UPDATE {self.source} SET n = -1 WHERE id = {row_id}")

    def mend(self, row_id):
        """Correct that row."""
        self.run(f"UPDATE {self.source} SET n = {row_id * 10} WHERE id = {row_id}")

    def submit(self, key="key", *, parts=4, batch_size=5, submit=None, **parameters):
        """Submit a task that copies the rows."""
        meta = sample_meta(self.source, self.target, parts=parts, batch_size=batch_size, lock_share=100, **parameters)
        return Dxf(self.database, actor="test").submit(CopyRows.name, key, meta, **(submit or {}))


@pytest.fixture
def rows(database):
    """Sixty rows to copy."""
    return Rows(database, 60)


@pytest.fixture
def registry():
    """The types that the nodes know."""
    return Registry(CopyRows())


@pytest.fixture
def make_cluster(database, registry, seed):
    """Makes clusters that end with the test."""
    made = []

    def make(**options):
        made.append(Cluster(database, registry, **{"seed": seed, **options}))
        return made[-1]

    yield make
    for cluster in made:
        cluster.__exit__()


@pytest.fixture
def cluster(make_cluster):
    """Two nodes with two slots each."""
    return make_cluster()


@pytest.fixture
def outcomes(database):
    """Reads what became of every request about a task: a list of (command, outcomes) in the order of asking."""

    def read(task_id):
        with database.transaction(write=False) as tx:
            log = events.history(tx, task_id=task_id)
        asked = [(event.request_id, event.detail["command"]) for event in log if event.kind == "request"]
        answered = [(event.request_id, event.target) for event in log if event.kind == "outcome"]
        return [(command, [target for number, target in answered if number == request]) for request, command in asked]

    return read
