"""The command line: `tideshift`, a contract that is stable from the first release (docs/cli.md, docs/json.md).

`app` has the group and loads a command's module only when it is called, so that `--help`, completion and `--version`
import nothing beyond click. `opening` turns the options into an open database, `follow` watches a job, `interruption`
is what Ctrl-C does, `output` what is printed and where, `register` who is alive; one module per family of commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code."""
    import sys

    from tideshift.frontends.cli.app import run

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
