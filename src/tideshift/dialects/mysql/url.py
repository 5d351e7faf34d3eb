"""Reading a server's address."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

__all__ = ["Address", "read_address"]

_OPTIONS = {"unix_socket": "unix_socket", "socket": "unix_socket", "connect_timeout": "connect_timeout"}
_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Address:
    """Where a database is, and how to get there: the library's own arguments."""

    database: str
    arguments: dict[str, Any]

    @property
    def by_socket(self) -> bool:
        """Whether the server is on this machine, reached by a socket."""
        return "unix_socket" in self.arguments


def read_address(text: str) -> Address:
    """Read a URL in SQLAlchemy's form; raise `ArgumentError` for one that is not understood."""
    url = make_url(text)
    if not url.database:
        raise ArgumentError("the URL names no database: write mysql://user@host/database")
    arguments: dict[str, Any] = {"user": url.username or getpass.getuser(), "password": url.password or "", "connect_timeout": _CONNECT_SECONDS}
    if url.host:
        arguments["host"] = url.host
    if url.port:
        arguments["port"] = url.port
    for name, value in url.query.items():
        if not isinstance(value, str):
            raise ArgumentError(f"the option {name} is given more than once")
        if name in _OPTIONS:
            arguments[_OPTIONS[name]] = int(value) if name == "connect_timeout" else value
        elif name in _TLS:
            arguments[name] = _switch(name, value) if name.rpartition("_")[2] in ("cert", "identity", "disabled") and name != "ssl_cert" else value
        elif name != "charset":  # the character set of our sessions is ours to choose
            known = ", ".join([*_OPTIONS, *_TLS])
            raise ArgumentError(f"the option {name!r} is not known; known are {known}")
    return Address(url.database, arguments)


def _switch(name: str, value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ArgumentError(f"the option {name} is true or false, not {value!r}")
