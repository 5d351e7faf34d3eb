"""From the options to an open database: logging, fault injection, warnings about the library, the system tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus, urlsplit

import click

from tideshift.frontends.cli.options import Settings
from tideshift.frontends.cli.output import holder_text

if TYPE_CHECKING:
    from tideshift.connect import Connected

__all__ = ["SystemTables", "create_tables", "inject_faults", "masked_url", "opened", "secrets_in"]

VARIABLE = "TIDESHIFT_URL"
FAULTS_VARIABLE = "TIDESHIFT_FAILPOINTS"
SECRET_FIELDS = ("pass", "passphrase", "passwd", "password", "pwd", "sslpassword")
"""What a query names a password."""


class SystemTables(Enum):
    """What a command needs of the system tables."""

    ANY = auto()
    REQUIRED = auto()
    CREATED = auto()


@contextmanager
def opened(ctx: click.Context, tables: SystemTables = SystemTables.REQUIRED) -> Iterator[Connected]:
    """Open the database that the options name, and say what of its library is dangerous."""
    settings = ctx.ensure_object(Settings)
    url = named_url(settings)
    _begin_logging(settings, url)

    from tideshift.connect import connect

    with connect(url) as connected, _naming_the_holder(connected):
        inject_faults(settings)
        warn_of_library(connected, settings)
        if tables is SystemTables.CREATED:
            create_tables(connected, settings)
        elif tables is SystemTables.REQUIRED:
            connected.require()
        yield connected


@contextmanager
def _naming_the_holder(connected: Connected) -> Iterator[None]:
    """Let an error about a lock name the process that holds it, where that can be known."""
    from tideshift.errors import LockTimeout

    try:
        yield
    except LockTimeout as error:
        holder = connected.dialect.load.lock_holder()
        if holder is not None:
            error.hint = f"{holder_text(asdict(holder))} holds it at this moment. {error.hint}"
        raise


def named_url(settings: Settings) -> str:
    """Return the URL that was given; a password must not stand where `ps` shows it."""
    if settings.url is None:
        url = os.environ.get(VARIABLE, "")
        if not url:
            raise click.UsageError(f"no database is named: give --url URL, or set {VARIABLE}")
        return url
    if secrets_in(settings.url):
        raise click.UsageError(
            f"a password on the command line is seen by everybody on this machine: set {VARIABLE} instead of --url {masked_url(settings.url)}"
        )
    return settings.url


def secrets_in(url: str) -> tuple[str, ...]:
    """Return the passwords that a URL carries, before the host or in the query, as they are written and as they are meant."""
    if "://" not in url:
        return ()
    try:
        parts = urlsplit(url)
        found = [parts.password or "", *(value for name, value in _fields(parts.query) if name.lower() in SECRET_FIELDS)]
    except ValueError:
        return ()
    forms = {form for secret in found for form in (secret, unquote(secret), unquote_plus(secret)) if form}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _fields(query: str) -> list[tuple[str, str]]:
    pairs = (field.partition("=") for field in query.replace(";", "&").split("&"))
    return [(unquote_plus(name), value) for name, _, value in pairs]


def masked_url(url: str) -> str:
    """Return the URL as it may be shown."""
    for secret in secrets_in(url):
        url = url.replace(f":{secret}@", ":***@", 1).replace(f"={secret}", "=***")
    return url


def _begin_logging(settings: Settings, url: str) -> None:
    from tideshift.frontends.cli.logs import begin_logging

    try:
        begin_logging(settings.screen, verbosity=settings.verbosity, log_file=settings.log_file, secrets=secrets_in(url))
    except OSError as error:
        raise click.UsageError(f"the log cannot be written: {error}") from error


def inject_faults(settings: Settings) -> None:
    """Switch on the failpoints that the environment names, if this process may; first every layer declares its own."""
    if FAULTS_VARIABLE not in os.environ:
        return
    from tideshift.failpoint import FailpointError, activate_from_environment, import_points

    import_points("tideshift")
    try:
        activate_from_environment(enabled=settings.failpoints, stream=sys.stderr)
    except FailpointError as error:
        raise click.UsageError(str(error)) from error


def warn_of_library(connected: Connected, settings: Settings) -> None:
    """Say on every run, on one line, what of the database's library can do harm; the rest is for `doctor`."""
    from tideshift.ddl.dialect import Weight

    for finding in connected.dialect.catalog.findings(connected.database):
        if finding.weight is Weight.EVERY_RUN:
            settings.screen.warn(one_line(f"{finding.message} {finding.hint}"))


def create_tables(connected: Connected, settings: Settings) -> None:
    """Create missing system tables and say so; tables of another version are an error with the command to run."""
    from tideshift.store import bootstrap

    if bootstrap.state(connected.database) in (bootstrap.SystemState.ABSENT, bootstrap.SystemState.PARTIAL):
        if connected.bootstrap():
            settings.screen.message("created the system tables (see: tideshift init --dry-run)")
    else:
        connected.require()


def one_line(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())
