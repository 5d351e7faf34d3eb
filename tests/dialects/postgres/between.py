"""What may stand between a client and the server: a pool of sessions, and a wire on which answers are lost."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers import PostgresServer, Unavailable, end_with_parent, fast_folder, unprivileged_user
from tests.waiting import until

PORT = 6432
SOCKET = ".s.PGSQL.5432"
_LENGTH = struct.Struct("!I")
_COMMIT = b"COMMIT\0"


def find_pool() -> str:
    """Return the program of PgBouncer."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unavailable("no pgbouncer on this machine (apt-get install pgbouncer)")
    return found


@contextmanager
def pool(server: PostgresServer, mode: str) -> Iterator[Path]:
    """Run PgBouncer before a server; give the folder of its socket."""
    program = find_pool()
    uid, gid = unprivileged_user("postgres")
    folder = Path(tempfile.mkdtemp(prefix="tideshift-pool-", dir=fast_folder()))
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        f"[databases]\n* = host={server.folder / 'socket'} user=tideshift\n[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {folder}\n"
        f"auth_type = any\npool_mode = {mode}\nlogfile = {folder / 'log'}\nmax_client_conn = 200\ndefault_pool_size = 50\n"
    )
    for path in (folder, configuration):
        if uid:
            os.chown(path, uid, gid)
    folder.chmod(0o755)
    parent = os.getpid()
    as_user = {"user": uid, "group": gid, "extra_groups": []} if uid else {}
    process = subprocess.Popen([program, "-q", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=lambda: end_with_parent(parent), **as_user)  # noqa: PLW1509 - no thread runs here yet
    try:
        until((folder / f".s.PGSQL.{PORT}").exists, "the pool's socket")
        yield folder
    finally:
        process.kill()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


class Wire:
    """A socket that hands everything on, but for the answer to chosen commits: there the connection breaks, and the commit stands or not."""

    def __init__(self, server: PostgresServer) -> None:
        self._target = str(server.folder / "socket" / SOCKET)
        self.folder = Path(tempfile.mkdtemp(prefix="tideshift-wire-", dir=fast_folder()))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET))
        self._listener.listen(64)
        self._lock = threading.Lock()
        self.commits = 0
        """How many commits were asked for."""
        self.broken = 0
        self.breaks_at: frozenset[int] = frozenset()
        """The commits by number whose connection breaks."""
        self.reaches_server = True
        """Whether a commit whose connection breaks has reached the server before."""
        self._thread = threading.Thread(target=self._accept, name="wire", daemon=True)
        self._thread.start()

    def url(self, database: str) -> str:
        """Return the way to a database over this wire."""
        return f"postgresql+psycopg://tideshift@/{database}?host={self.folder}"

    def close(self) -> None:
        """Hang up for good."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:  # ends with the listener
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            swallow = threading.Event()
            for target in (lambda c=client, s=server, e=swallow: self._ask(c, s, e), lambda c=client, s=server, e=swallow: self._answer(c, s, e)):
                threading.Thread(target=target, daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, swallow: threading.Event) -> None:
        """Hand on what the client says, message by message."""
        first = True
        with suppress(OSError, EOFError):
            while True:  # ends when either side hangs up
                kind = b"" if first else _exactly(client, 1)
                size = _exactly(client, 4)
                body = _exactly(client, _LENGTH.unpack(size)[0] - 4)
                first = False
                if kind == b"Q" and body == _COMMIT and self._breaks():
                    if not self.reaches_server:
                        break
                    swallow.set()
                server.sendall(kind + size + body)
        _hang_up(server, client if not swallow.is_set() else None)

    def _answer(self, client: socket.socket, server: socket.socket, swallow: threading.Event) -> None:
        """Hand on what the server says, until an answer is to be lost."""
        with suppress(OSError):
            while answer := server.recv(65_536):
                if swallow.is_set():
                    break  # the server has answered: what it was asked for is done
                client.sendall(answer)
        _hang_up(client, server)

    def _breaks(self) -> bool:
        with self._lock:
            self.commits += 1
            breaks = self.commits in self.breaks_at
            self.broken += breaks
            return breaks


def _exactly(sock: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        more = sock.recv(count - len(received))
        if not more:
            raise EOFError
        received += more
    return received


def _hang_up(*sockets: socket.socket | None) -> None:
    for one in sockets:
        if one is not None:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
