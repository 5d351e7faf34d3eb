"""What is special about the driver of SQLite: files, settings of a connection, locks, names."""

import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.databases import opened
from tests.servers import sqlite_module
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.library import library_warnings, sqlite_library
from tideshift.dialects.sqlite.session import own_identity, process_gone
from tideshift.errors import CannotReach, DiskFull, LockTimeout
from tideshift.store import bootstrap, events
from tideshift.store.database import ConstraintViolated, Database, DatabaseFailed
from tideshift.store.driver import Failure, SessionIdentity
from tideshift.store.tables import event

MODES = ["wal", "delete"]


def bare(path):
    """A connection of the application's, not ours."""
    return closing(sqlite_module().connect(path, isolation_level=None, timeout=0))


@pytest.fixture(params=MODES)
def mode(request):
    """Each journal mode."""
    return request.param


@pytest.fixture
def moded(tmp_path, mode):
    """An open database with system tables in a file of that mode."""
    path = tmp_path / "moded.db"
    with bare(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    with opened(f"sqlite:///{path}") as database:
        bootstrap.bootstrap(database)
        yield database


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["absent.db", "no/such/folder.db", "absent?mode=rwc", "absent.db?mode=rwc#x"])
def test_a_missing_file_is_refused_and_not_made(tmp_path, name):
    """Opening what is not there creates nothing, whatever the name tries to say to SQLite."""
    with opened(f"sqlite:///{tmp_path / name}") as database, pytest.raises(CannotReach, match="not there"):
        bootstrap.state(database)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_and_another_kind_of_file_are_refused(tmp_path):
    """What is not an SQLite database is said to be none, and stays as it was."""
    (tmp_path / "notes.txt").write_text("not a database " * 100)

    for path, reason in ((tmp_path, "not there or may not"), (tmp_path / "notes.txt", "not an SQLite database")):
        with opened(f"sqlite:///{path}") as database, pytest.raises(CannotReach, match=reason):
            bootstrap.state(database)

    assert (tmp_path / "notes.txt").read_text() == "not a database " * 100


@pytest.mark.parametrize(
    "name", ["a b.db", "a?b#c.db", "100%.db", "%41.db", "ü'\".db", "file:x.db", "a&mode=memory.db"]
)
def test_any_file_name_opens_that_very_file(tmp_path, name):
    """Characters that mean something in a URI mean nothing in a path."""
    path = tmp_path / name
    with bare(str(path)) as connection:
        connection.execute("CREATE TABLE mark (x)")

    with closing(SqliteDriver(path).connect()) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()

    assert tables == [("mark",)]
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_a_name_that_is_not_unicode_opens(tmp_path):
    """A path is bytes to the system, and works when they are no UTF-8."""
    with bare(str(tmp_path / "made.db")) as connection:
        connection.execute("CREATE TABLE mark (x)")
    path = os.fsencode(tmp_path) + b"/\xff.db"
    os.rename(tmp_path / "made.db", path)  # noqa: PTH104 - a path of bytes

    with opened("sqlite:///" + os.fsdecode(path)) as database:
        bootstrap.bootstrap(database)

        assert bootstrap.installation_changed(database) is None


def test_a_file_that_is_locked_opens_and_then_waits(tmp_path):
    """An exclusive lock of somebody else is met by a transaction, as a lock that was not given in time."""
    path = tmp_path / "locked.db"
    with bare(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("BEGIN EXCLUSIVE")
        database = Database(SqliteDriver(path, open_wait_seconds=0))

        with pytest.raises(LockTimeout), database.transaction(lock_wait_seconds=0):
            pass

    database.close()


# ── the user's file and settings ──────────────────────────────────────────────────────────────────────────────────


def test_the_file_keeps_its_settings(tmp_path, mode):
    """Installing, working and removing change no setting that lives in the file, and leave no other file behind."""
    path = tmp_path / "kept.db"
    settings = ("journal_mode", "user_version", "application_id", "page_size", "auto_vacuum", "encoding", "synchronous")
    with bare(path) as connection:
        for setting in ("page_size = 8192", f"journal_mode = {mode}", "user_version = 77", "application_id = 1234"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE t (x)")
        before = [connection.execute(f"PRAGMA {name}").fetchone() for name in settings]

    with opened(f"sqlite:///{path}") as database:
        bootstrap.bootstrap(database)
        with database.transaction(durable=False) as tx:
            events.record(tx, actor="a", kind="k", job_id=1)
        bootstrap.uninstall(database)

    with bare(path) as connection:
        assert [connection.execute(f"PRAGMA {name}").fetchone() for name in settings] == before
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    assert [found.name for found in tmp_path.iterdir()] == ["kept.db"]


@pytest.mark.parametrize(
    ("durable", "levels"), [(True, {"wal": 2, "delete": 3}), (False, {"wal": 1, "delete": 2})], ids=["durable", "weak"]
)
def test_a_commit_is_as_hard_as_asked(moded, mode, durable, levels):
    """Durable: FULL in WAL mode, EXTRA beside a rollback journal. Weak: NORMAL in WAL mode only, where it is safe."""
    with moded.session() as session:
        for wanted in (durable, not durable, durable):
            with session.transaction(durable=wanted) as tx:
                level = tx.run_verbatim("PRAGMA synchronous").scalar()

    assert level == levels[mode]


def test_waiting_is_set_for_each_transaction(moded):
    """The time to wait for the lock is that of the transaction, not of the one before."""
    with moded.session() as session:
        waits = []
        for seconds in (1.5, 0, 0.25):
            with session.transaction(lock_wait_seconds=seconds) as tx:
                waits.append(tx.run_verbatim("PRAGMA busy_timeout").scalar())

    assert waits == [1500, 0, 250]


def test_system_tables_carry_the_prefix(moded):
    """Tables are prefixed, indexes have exactly the names that they were given, on the tables that they belong to."""
    with moded.transaction(write=False) as tx:
        rows = tx.run_verbatim("SELECT type, name, tbl_name FROM sqlite_master WHERE name <> 't' AND sql NOT NULL").rows

    assert {name for kind, name, _ in rows if kind == "table"} >= {
        "tideshift_event", "tideshift_owner_lease", "tideshift_system_version",
    }  # fmt: skip
    assert {(name, table) for kind, name, table in rows if kind == "index" and table == "tideshift_event"} == {
        ("tideshift_event_job", "tideshift_event"),
        ("tideshift_event_task", "tideshift_event"),
        ("tideshift_event_request", "tideshift_event"),
    }


def test_no_function_of_ours_meets_the_users_schema(moded):
    """A CHECK that needs a function which only the application has is not satisfied by one of SQLAlchemy's."""
    with pytest.raises(DatabaseFailed, match="REGEXP"), moded.transaction() as tx:
        tx.run_verbatim("SELECT 'a' REGEXP 'a'")


def test_text_that_is_not_utf8_keeps_its_bytes(moded):
    """Broken text is read in a form that gives its bytes back."""
    with moded.transaction() as tx:
        value = tx.run_verbatim("SELECT CAST(x'61ff00fe' AS TEXT)").scalar()

    assert value.encode("utf-8", "surrogateescape") == b"a\xff\x00\xfe"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_is_named(moded):
    """No room left is neither a reason to retry nor a bug."""
    with moded.session() as session:
        with session.transaction(write=False) as tx:
            pages = tx.run_verbatim("PRAGMA page_count").scalar()
        session.connection.connection.dbapi_connection.execute(f"PRAGMA max_page_count = {pages + 1}")

        with pytest.raises(DiskFull), session.transaction() as tx:  # noqa: PT012
            for i in range(100):
                tx.run_verbatim("INSERT INTO t VALUES (?, zeroblob(4000))", (i,))

        with session.transaction() as tx:
            assert tx.run_verbatim("SELECT count(*) FROM t").scalar() == 0


def test_the_wrong_type_in_a_strict_table_is_a_constraint(moded):
    """A value that a column's type refuses is told apart from a broken statement."""
    with moded.transaction() as tx:
        tx.run_verbatim("CREATE TABLE s (id INTEGER PRIMARY KEY, v INT) STRICT")

    for values in ("(1, 'abc')", "('abc', 1)"):
        with pytest.raises(ConstraintViolated), moded.transaction() as tx:
            tx.run_verbatim(f"INSERT INTO s VALUES {values}")


def test_a_reader_that_blocks_the_commit_leaves_no_lock_behind(tmp_path):
    """With a rollback journal a commit may be refused; it is taken back, and the kept session works on."""
    path = tmp_path / "read.db"
    with bare(path) as reader, opened(f"sqlite:///{path}") as database, database.session() as session:
        reader.execute("CREATE TABLE t (x)")
        reader.execute("INSERT INTO t VALUES (1)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchone()

        with pytest.raises(LockTimeout), session.transaction(lock_wait_seconds=0.01) as tx:
            tx.run_verbatim("INSERT INTO t VALUES (2)")
        reader.execute("COMMIT")
        with bare(path) as writer:
            writer.execute("INSERT INTO t VALUES (3)")
        with session.transaction() as tx:
            rows = tx.run_verbatim("SELECT x FROM t ORDER BY x").rows

    assert rows == [(1,), (3,)]


@pytest.mark.parametrize(
    ("code", "committing", "failure"),
    [
        (5, False, Failure.LOCK_TIMEOUT),
        (5, True, Failure.LOCK_TIMEOUT),
        (5 | 2 << 8, False, Failure.LOCK_TIMEOUT),
        (6, False, Failure.LOCK_TIMEOUT),
        (9, False, Failure.RETRYABLE),
        (10, False, Failure.FATAL),
        (10 | 4 << 8, True, Failure.AMBIGUOUS_COMMIT),
        (11, False, Failure.FATAL),
        (13, True, Failure.DISK_FULL),
        (17, False, Failure.RETRYABLE),
        (19 | 8 << 8, False, Failure.CONSTRAINT),
        (20, False, Failure.CONSTRAINT),
    ],
)
def test_each_result_code_has_its_meaning(sqlite_path, code, committing, failure):
    """Codes decide, extended or not; only an input or output error at the commit leaves it open."""
    driver = SqliteDriver(sqlite_path)
    error = driver.module.OperationalError("the text says nothing")
    error.sqlite_errorcode = code

    assert driver.classify(error, committing=committing) is failure


def test_a_closed_connection_is_lost(sqlite_path):
    """An error of the module without a code is read by what it says."""
    driver = SqliteDriver(sqlite_path)
    connection = driver.connect()
    connection.close()

    with pytest.raises(driver.module.Error) as caught:
        connection.execute("SELECT 1")

    assert driver.classify(caught.value, committing=False) is Failure.LOST


# ── sessions and installation ─────────────────────────────────────────────────────────────────────────────────────


def test_a_process_that_ended_is_gone():
    """A child is alive while it runs, and gone when it has ended, before and after its parent took notice."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    theirs = SessionIdentity(server=own_identity().server, backend=str(child.pid), started=fields[19])

    alive = not process_gone(theirs)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    gone_unnoticed = process_gone(theirs)
    child.wait()

    assert (alive, gone_unnoticed, process_gone(theirs)) == (True, True, True)


def test_a_process_number_used_again_is_another_process():
    """The same number with another start, or from before the machine's last start, is gone; another host's is unknown."""
    mine = own_identity()

    assert not process_gone(mine)
    assert process_gone(SessionIdentity(server=mine.server, backend=mine.backend, started="1"))
    assert process_gone(
        SessionIdentity(server=f"{socket.gethostname()}/other", backend=mine.backend, started=mine.started)
    )
    assert not process_gone(SessionIdentity(server="elsewhere/x", backend="999999", started="1"))


def test_a_copied_file_is_another_installation(moded, tmp_path):
    """A copy has other identity than the original; VACUUM and a symbolic link change nothing."""
    with moded.session() as session:
        session.connection.connection.dbapi_connection.execute("VACUUM")
    assert bootstrap.installation_changed(moded) is None
    path = tmp_path / "moded.db"
    (tmp_path / "link.db").symlink_to(path)
    with opened(f"sqlite:///{tmp_path / 'link.db'}") as linked:
        assert bootstrap.installation_changed(linked) is None
    with bare(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, tmp_path / "copy.db")

    with opened(f"sqlite:///{tmp_path / 'copy.db'}") as copied:
        before, after = bootstrap.installation_changed(copied)

    assert before["file"] != after["file"]
    assert (before["path"], after["path"]) == (str(path), str(tmp_path / "copy.db"))


def test_many_threads_read_and_write_through_one_pool(moded):
    """Connections of the pool serve whatever thread asks."""

    def work(number):
        moded.run(lambda tx: events.record(tx, actor="a", kind="k", job_id=number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(64)))

    with moded.transaction(write=False) as tx:
        assert len(tx.execute(select(event.c.id)).all()) == 64


# ── the library ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 4), False),
    ],
)
def test_the_wal_reset_bug_is_named_for_its_versions(version, warned):
    """The warning comes for the versions that have the bug, in WAL mode only, and names the extra that helps."""
    warnings = library_warnings(journal_mode="wal", version=version)

    assert bool(warnings) is warned
    assert all("tideshift[sqlite]" in warning for warning in warnings)
    assert library_warnings(journal_mode="delete", version=version) == []


def test_the_module_is_chosen_by_the_environment(monkeypatch):
    """TIDESHIFT_SQLITE=stdlib takes the standard library's module."""
    monkeypatch.setenv("TIDESHIFT_SQLITE", "stdlib")

    module, version = sqlite_library()

    assert module.__name__ == "sqlite3"
    assert version == module.sqlite_version_info
    assert SqliteDriver("x").module is module
