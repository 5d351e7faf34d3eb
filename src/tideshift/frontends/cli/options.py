"""The options that commands share, and the types of their values."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeVar

import click

from tideshift.errors import InvalidParameter
from tideshift.frontends.cli.output import Screen

__all__ = [
    "DURATION", "OLD_SNAPSHOTS", "SPEED", "Settings", "database_options", "job_ids", "json_option", "statement_options", "statement_text",
    "strategy_options", "timeout_option", "way_of",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
SECONDS_MAX = 100 * 365 * 86_400.0
JOB_ID = click.IntRange(min=1, max=2**63 - 1)


class Settings:
    """What was said about the database and the output, before or after the command's name."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.verbosity = 0
        self.log_file: str | None = None
        self.failpoints = False
        self.json_wanted = False
        self.screen = Screen()


class Duration(click.ParamType):  # type: ignore[type-arg] # generic only in newer versions
    """A duration such as 90s, 5m, 24h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        from tideshift.config import parse_duration_seconds

        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration_seconds(value)
        except InvalidParameter as error:
            self.fail(f"{error.message}. {error.hint}", param, ctx)
        if seconds > SECONDS_MAX:
            self.fail(f"{value!r} is more than a hundred years", param, ctx)
        return seconds


class Speed(click.ParamType):  # type: ignore[type-arg] # generic only in newer versions
    """A ceiling such as 20MiB or 5000rows; it stays as written, once it is seen to be right."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        from tideshift.config import parse_bytes_or_rows

        try:
            parse_bytes_or_rows(value)
        except InvalidParameter as error:
            self.fail(f"{error.message}. {error.hint}".rstrip(), param, ctx)
        return str(value)


class OldSnapshots(click.ParamType):  # type: ignore[type-arg] # generic only in newer versions
    """`wait DURATION` or `proceed`; it stays as written, once it is seen to be right."""

    name = "wait"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        from tideshift.config import parse_old_snapshots

        try:
            return parse_old_snapshots(str(value))
        except InvalidParameter as error:
            self.fail(f"{error.message}. {error.hint}".rstrip(), param, ctx)


DURATION = Duration()
OLD_SNAPSHOTS = OldSnapshots()
SPEED = Speed()


def database_options(command: F) -> F:
    """Add what names the database and what is logged; each is accepted before and after the command's name."""
    for option in (
        click.option(
            "--log-file", metavar="FILE", expose_value=False, callback=_keep("log_file"),
            help="Append the log as JSON lines with job and task ids.",
        ),
        click.option(
            "-v", "--verbose", count=True, expose_value=False, callback=_keep("verbosity"),
            help="Show the log on stderr; twice for more.",
        ),
        click.option(
            "--url", metavar="URL", expose_value=False, callback=_keep("url"),
            help="The database: a path, or sqlite:///path. Default: the environment variable TIDESHIFT_URL.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        settings = ctx.ensure_object(Settings)
        if value == "":
            raise click.UsageError(f"{option.opts[0]} is given and empty", ctx)
        if value:
            setattr(settings, name, value)

    return keep


def json_option(command: F) -> F:
    """Add --json."""
    return click.option(
        "--json", "json_wanted", is_flag=True, expose_value=False, callback=_keep("json_wanted"), help="Print JSON (docs/json.md)."
    )(command)


def timeout_option(text: str) -> Callable[[F], F]:
    """Add --timeout with its own help."""
    return click.option("--timeout", "timeout_seconds", type=DURATION, metavar="DURATION", help=text)


def job_ids(command: F) -> F:
    """Add one or more job ids."""
    return click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)(command)


def statement_options(command: F) -> F:
    """Add the statement: as an argument, from a file, or from standard input."""
    kind: click.ParamType = click.File(encoding="utf-8")  # type: ignore[type-arg] # generic only in newer versions
    command = click.option("-f", "--file", "source", type=kind, metavar="FILE", help="Read the statement from FILE; - is stdin.")(command)
    return click.argument("statement", metavar='"STATEMENT"', required=False)(command)


def strategy_options(command: F) -> F:
    """Add --strategy, and --fast for the one that holds the lock."""
    command = click.option(
        "--fast", is_flag=True,
        help="The same as --strategy direct: as fast as the database can, in one transaction, and every writer waits that long; no row is tried before.",
    )(command)  # fmt: skip
    command = click.option(
        "--allow-column-order-change", is_flag=True,
        help="Let a column be changed in place, where the database can and there is no other way or --strategy in_place asks for it: one column more is seen meanwhile, and the"
        " changed one stands last afterwards. The plan names what breaks.",
    )(command)  # fmt: skip
    kind = click.Choice(["instant", "direct", "shadow_table", "in_place"])
    text = "Carry it out in this way, or refuse (default: the cheapest that does it right)."
    return click.option("--strategy", type=kind, help=text)(command)


def way_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the way that was asked for and what is allowed on it, as the commands on jobs take them."""
    strategy = options["strategy"]
    if options["fast"] and strategy not in (None, "direct"):
        raise click.UsageError("--fast is --strategy direct; give one of them")
    return {"strategy": "direct" if options["fast"] else strategy, "allow_column_order_change": options["allow_column_order_change"]}


def statement_text(statement: str | None, source: IO[str] | None) -> str:
    """Return the one statement that was given, wherever it stands."""
    if (statement is None) == (source is None):
        raise click.UsageError("give one statement, either as an argument or with -f FILE")
    if statement == "-":
        source = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
    if source is not None:
        try:
            statement = source.read()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"the statement is not UTF-8 text: {error.reason} at byte {error.start}") from error
    assert statement is not None
    if not statement.strip():
        raise click.UsageError("the statement is empty")
    return statement
