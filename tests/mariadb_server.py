"""A private MariaDB server for the tests: in a temporary folder, on a Unix socket, as somebody other than root (see `servers`)."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.servers import (
    START_SECONDS_MAX,
    USER_NAME,
    Unavailable,
    end,
    ended_within,
    fast_folder,
    last_words,
    launch,
    own_folder,
    unprivileged_user,
)
from tests.servers import remove_abandoned as remove_abandoned_of

FOLDER_PREFIX = "tideshift-maria-"
PROGRAM_FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/usr/local/mysql/scripts")
SYSTEM_DATABASE = "tideshift"


class MariaServer:
    """One private MariaDB server; `settings` are options of mariadbd and come behind those of the tests."""

    def __init__(self, *, durable: bool = False, settings: tuple[str, ...] = (), inside: Path | None = None) -> None:
        self.program, self.installer = find_mariadb()
        self.durable = durable
        self.settings = settings
        remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=inside or fast_folder()))
        self._uid, self._gid = unprivileged_user("mysql")
        self._server: subprocess.Popen[bytes] | None = None
        self._databases_made = 0
        atexit.register(self.remove)
        own_folder(self.folder, uid=self._uid, gid=self._gid)
        self._initialise()

    @property
    def socket(self) -> Path:
        """Where the server listens."""
        return self.folder / "socket"

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        assert self._server is not None
        return self._server.pid

    def url(self, database: str, *, user: str = USER_NAME) -> str:
        """Return SQLAlchemy's URL text for a database of this server."""
        return f"mariadb+pymysql://{user}@/{database}?unix_socket={self.socket}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server = launch(
            [str(self.program), "--no-defaults", *self._settings()], self.folder, self._environment(), uid=self._uid, gid=self._gid,
            at_end=signal.SIGKILL,
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if ended_within(self._server, 0.02) or time.monotonic() > deadline:
                reason = last_words(self.folder)
                self.stop(signal.SIGKILL)
                raise Unavailable(f"the server did not start: {reason}")

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """End the server by its own pid (SIGTERM: clean; SIGKILL: as a crash) and wait until it is gone."""
        server, self._server = self._server, None
        end(server, sent)

    def remove(self) -> None:
        """Stop the server and leave nothing behind; harmless when repeated."""
        self.stop(signal.SIGKILL)  # what it holds is thrown away, so it need not write it down
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        self._databases_made += 1
        name = f"test_{self._databases_made}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database and the system tables, whoever still holds a table of them."""
        holders = f"SELECT id FROM information_schema.processlist WHERE user = '{USER_NAME}' AND id <> connection_id() AND command <> 'Killed'"
        for (session,) in self.execute(holders):
            try:
                self.execute(f"KILL {session}")
            except OSError as error:  # it went by itself meanwhile
                assert "Unknown thread" in str(error)  # noqa: PT017
        for one in (name, SYSTEM_DATABASE):
            self.execute(f"DROP DATABASE IF EXISTS {one}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement of administration as the server's root."""
        import pymysql

        with closing(pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.Error as error:
                raise OSError(f"{statement}: {error}") from error
            return list(cursor.fetchall())

    def _initialise(self) -> None:
        command = [
            str(self.installer), "--no-defaults", f"--datadir={self.folder / 'data'}", "--auth-root-authentication-method=normal", "--skip-test-db",
            "--skip-name-resolve", "--innodb-flush-method=nosync", "--innodb-log-file-size=32M",
        ]  # fmt: skip
        dropped = {"user": self._uid, "group": self._gid, "extra_groups": []} if self._uid else {}
        made = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False, timeout=60, **dropped
        )
        if made.returncode != 0:
            self.remove()
            raise Unavailable(f"{self.installer.name} failed: {' '.join((made.stdout + made.stderr).split())[-500:]}")
        (self.folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS {USER_NAME}@localhost;\nGRANT ALL ON *.* TO {USER_NAME}@localhost WITH GRANT OPTION;\n", encoding="utf-8"
        )

    def _settings(self) -> list[str]:
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite"]
        return [
            f"--datadir={self.folder / 'data'}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            f"--init-file={self.folder / 'init.sql'}",
            f"--tmpdir={self.folder}",
            "--skip-networking",
            "--skip-name-resolve",
            "--innodb-log-file-size=32M",
            "--innodb-buffer-pool-size=128M",
            "--character-set-server=utf8mb4",
            *(["--innodb-flush-log-at-trx-commit=1"] if self.durable else fast),
            *self.settings,
        ]

    def _answers(self) -> bool:
        import pymysql

        with closing(socket.socket(socket.AF_UNIX)) as wire:  # the library would leave it open
            if wire.connect_ex(str(self.socket)) != 0:
                return False
        try:
            pymysql.connect(unix_socket=str(self.socket), user=USER_NAME).close()
        except pymysql.Error:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "MARIADB", "LC_"))}
        # A server that starts clears temporary tables out of its temporary folder, whoever they belong to.
        return kept | {"LC_ALL": "C", "HOME": str(self.folder), "TMPDIR": str(self.folder)}


def find_mariadb() -> tuple[Path, Path]:
    """Return the server's program and the one that makes its folder."""
    folders = [*PROGRAM_FOLDERS, *os.environ.get("PATH", "").split(":")]
    found = [
        next((Path(folder) / name for folder in folders if (Path(folder) / name).exists()), None) for name in ("mariadbd", "mariadb-install-db")
    ]
    if found[0] is None or found[1] is None:
        raise Unavailable("no MariaDB on this machine (apt-get install mariadb-server)")
    return found[0], found[1]


def remove_abandoned() -> None:
    """Remove the folders of servers whose starter was killed."""
    remove_abandoned_of(FOLDER_PREFIX, "pid")
