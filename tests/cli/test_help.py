"""Help, completion and the version are quick: they import nothing beyond click."""

import json
import subprocess
import sys

import click
import pytest

from tests.cli.programs import PROGRAM, environment, run
from tideshift import __version__
from tideshift.config import PARAMETERS
from tideshift.frontends.cli.app import COMMANDS, application
from tideshift.frontends.demo import ROWS_DEFAULT

PROBE = """
import json, sys
before = set(sys.modules)
from tideshift.frontends.cli.app import run
try:
    run(sys.argv[1:])
except SystemExit:
    print()
print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))
"""


def brought_by(*arguments, variables=None):
    out = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True, env=environment(None, variables)
    ).stdout
    return set(json.loads(out.splitlines()[-1])) - sys.stdlib_module_names


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"], ["nonsense"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_brings_nothing_beyond_click(arguments):
    """Asking for help or the version imports tideshift's own small modules and click only."""
    assert brought_by(*arguments) <= {"tideshift", "click"}


def test_completion_brings_nothing_beyond_click():
    """Completing a command and an option imports click only, and offers them."""
    complete = {"_TIDESHIFT_COMPLETE": "bash_complete", "COMP_WORDS": "tideshift al", "COMP_CWORD": "1"}

    assert brought_by(variables=complete) <= {"tideshift", "click"}
    assert "alter" in run(variables=complete).out
    assert "--detach" in run(variables={**complete, "COMP_WORDS": "tideshift alter --de", "COMP_CWORD": "2"}).out


def test_the_demonstration_says_how_many_rows_it_makes():
    """Its help names the number that the demonstration takes by itself."""
    assert run("demo", "--help").out.count("200000") == 1
    assert ROWS_DEFAULT == 200_000


def test_version():
    """--version names the program and its version."""
    assert run("--version").out == f"tideshift {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_list_says_what_the_command_says(name):
    """The line in the list of commands is the command's own."""
    command = application.get_command(click.Context(application), name)

    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


def test_help_keeps_examples_in_lines():
    """Examples in a help text are not run together."""
    out = run("alter", "--help").out

    assert '  tideshift alter "ALTER TABLE orders ALTER COLUMN total TYPE NUMERIC"\n' in out
    assert "\b" not in out


@pytest.mark.parametrize("name", ["batch_size", "lock_share"])
def test_help_tells_the_defaults_of_the_configuration(name):
    """A default that a help text names is the one that is in force."""
    command = application.get_command(click.Context(application), "alter")
    (option,) = [option for option in command.params if option.name == name]

    assert f"(default {PARAMETERS[name].default})" in option.help


def test_console_script_is_the_same_program():
    """The installed script leads to the function that these tests run as a module."""
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="tideshift")

    assert script.value == "tideshift.frontends.cli:main"
    assert PROGRAM[-1] == script.value.split(":")[0]
