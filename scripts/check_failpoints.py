"""Check that every declared failpoint was reached by some test.

Use: check_failpoints.py FILE [FILE …]

FILE is what `pytest --failpoint-trace FILE` wrote: the names of the points that tests enabled and passed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tideshift import failpoint
from tideshift.failpoint.pytest_plugin import names_hit


def unreached(trace_files: Iterable[Path]) -> list[failpoint.Declaration]:
    """Return the declared points that none of the traces names."""
    reached = frozenset[str]().union(*map(names_hit, trace_files))
    return [declaration for declaration in failpoint.catalogue() if declaration.name not in reached]


def main(arguments: list[str]) -> int:
    """Print the points that no test reached; their number decides the exit status."""
    trace_files = [Path(argument) for argument in arguments]
    if not trace_files or not all(path.exists() for path in trace_files):
        print(f"no such trace: {', '.join(arguments) or 'name a file'}", file=sys.stderr)
        return 2
    imported = failpoint.import_points("tideshift")
    missing = unreached(trace_files)
    for declaration in missing:
        print(f"failpoint {declaration.name} is reached by no test ({declaration.place})", file=sys.stderr)
    print(f"failpoints: {len(failpoint.catalogue()) - len(missing)} of {len(failpoint.catalogue())} reached by tests"
          f" ({len(imported)} modules)")  # fmt: skip
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
