"""The command line's reference, from click's own objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc

import click

from tideshift.frontends.cli.app import COMMANDS, application

__all__ = ["command_line"]

SHARED = ("--url", "--verbose", "--log-file")


def command_line() -> str:
    """Write every command: how it is called, what it does, and its options."""
    context = click.Context(application, info_name="tideshift", help_option_names=["-h", "--help"])
    lines = ["## Options of every command but `demo`", "", *_options(context, application, only=SHARED), ""]
    for name in COMMANDS:
        command = application.get_command(context, name)
        assert command is not None
        lines += [*_command(click.Context(command, info_name=name, parent=context), command), ""]
    return "\n".join(lines).rstrip()


def _command(context: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join(["tideshift", str(command.name), *command.collect_usage_pieces(context)])
    yield from [f"## {command.name}", "", "```", usage, "```", "", *_prose(command.help or "")]
    options = list(_options(context, command, without=SHARED))
    if len(options) > 2:
        yield from ["", *options]


def _prose(text: str) -> Iterator[str]:
    """Turn a help text into Markdown: what click keeps as it stands becomes a block of code."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", cleandoc(text))):
        if number:
            yield ""
        if paragraph.startswith("\b"):
            yield from ["```", *(line.rstrip() for line in paragraph.split("\n")[1:]), "```"]
        else:
            yield " ".join(paragraph.split())


def _options(
    context: click.Context, command: click.Command, *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> Iterator[str]:
    yield from ["| option | meaning |", "|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        chosen = not only or bool({*only, "--help"} & {*parameter.opts})
        if record is None or not chosen or {*without} & {*parameter.opts} or (without and "--help" in parameter.opts):
            continue
        if isinstance(parameter, click.Argument):
            continue
        names, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
        yield f"| `{names}` | {text} |"
