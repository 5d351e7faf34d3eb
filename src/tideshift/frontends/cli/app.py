"""The group of commands: a table of names, so that asking for help imports no command; and what becomes of an error."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from tideshift import __version__
from tideshift.errors import Interrupted, TideshiftError
from tideshift.frontends.cli.options import Settings, database_options
from tideshift.frontends.cli.output import print_error

__all__ = ["COMMANDS", "application", "run"]

COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("plan", "Say what a change would do; write nothing."),
    "alter": ("alter", "Carry a change out as a durable job, and follow it to its end."),
    "jobs": ("jobs", "List jobs, newest first."),
    "job": ("jobs", "Show one job."),
    "watch": ("jobs", "Follow a job to its end."),
    "wait": ("jobs", "Wait for the end of jobs."),
    "pause": ("control", "Pause jobs; what they have done so far is kept."),
    "resume": ("control", "Let paused jobs go on."),
    "cancel": ("control", "End jobs and undo what they made."),
    "set": ("control", "Change a job's parameters while it runs."),
    "tasks": ("tasks", "List tasks of the framework, newest first."),
    "task": ("tasks", "Show one task, or pause, resume, cancel or set tasks."),
    "node": ("node", "Run a node, which carries jobs out; or drain one."),
    "nodes": ("node", "List the registered nodes."),
    "init": ("system", "Create the system tables."),
    "upgrade": ("system", "Bring the system tables to this version."),
    "uninstall": ("system", "Drop the system tables."),
    "doctor": ("doctor", "Look for what is wrong or left over."),
    "demo": ("system", "See a change under a busy database, with a kill in the middle and a proof at the end."),
}
"""Per command: the module it is in, where it is named `NAME_command`, and its line in the list."""

SIGPIPE_CODE = 128 + signal.SIGPIPE


class Application(click.Group):
    """The group; a command's module is imported when the command is called or asked about."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"tideshift.frontends.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name those that are spelt alike."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"there is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader who goes away ends it as a closed pipe ends any program."""
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(SIGPIPE_CODE)
        return outcome


@click.group(cls=Application, name="tideshift", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@database_options
@click.option("--enable-failpoints", is_flag=True, hidden=True, help="Let TIDESHIFT_FAILPOINTS inject faults.")
@click.pass_context
def application(ctx: click.Context, enable_failpoints: bool) -> None:
    """Change big tables of a live database, as durable jobs.

    \b
    tideshift --url shop.db plan  "ALTER TABLE orders ALTER COLUMN total TYPE NUMERIC"
    tideshift --url shop.db alter "ALTER TABLE orders ALTER COLUMN total TYPE NUMERIC"
    tideshift --url shop.db jobs

    Data is written to stdout, progress and messages to stderr. A job outlives the process that started it: stop it,
    kill it, and go on with `tideshift watch ID --node`.
    """  # noqa: D301 - click reads the backspace as: keep these lines
    ctx.ensure_object(Settings).failpoints = enable_failpoints


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error is printed here, once."""
    json_wanted = "--json" in arguments
    _prepare_streams()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        outcome = application.main(args=list(arguments), prog_name="tideshift", standalone_mode=False)
    except click.UsageError as error:
        return _usage(error, json_wanted=json_wanted)
    except click.ClickException as error:
        print_error({"code": "usage", "message": error.format_message(), "hint": "", "fields": {}}, json_wanted=json_wanted)
        return 2
    except (click.Abort, KeyboardInterrupt):
        print_error(Interrupted("interrupted").as_record(), json_wanted=json_wanted)
        return Interrupted.exit_code
    except TideshiftError as error:
        print_error(error.as_record(), json_wanted=json_wanted)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last place that can say it in the promised form
        return _unexpected(error, json_wanted=json_wanted)
    return outcome if isinstance(outcome, int) else 0


def _prepare_streams() -> None:
    """Let names that no encoding has be printed, escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _terminate(*_: object) -> None:
    """Take SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt


def _usage(error: click.UsageError, *, json_wanted: bool) -> int:
    hint = "" if error.ctx is None else f"Try: {error.ctx.command_path} --help"
    text = error.format_message()
    if not json_wanted and "Usage:" in text:  # the group without any argument: click's message is the help
        click.echo(text, err=True)
        return 2
    print_error({"code": "usage", "message": text, "hint": hint, "fields": {}}, json_wanted=json_wanted)
    return 2


def _unexpected(error: Exception, *, json_wanted: bool) -> int:
    """Say that this is a bug of ours; the traceback goes to the log."""
    import logging

    logging.getLogger("tideshift.cli").debug("unexpected", exc_info=error)
    if os.environ.get("TIDESHIFT_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    message = f"unexpected {type(error).__name__}: {error}"
    hint = "This is a bug of tideshift; TIDESHIFT_TRACEBACK=1 shows where. Jobs are kept."
    print_error({"code": "internal", "message": message, "hint": hint, "fields": {}}, json_wanted=json_wanted)
    return 1
