"""A worker in a process of its own: an ordinary node, as `tideshift node` runs one, that ends with the demonstration."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tideshift.connect import connect
from tideshift.frontends.demo.stopping import StopSignal

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run a node until stopped: URL."""
    (url,) = arguments
    stop = StopSignal()
    with connect(url) as connected, connected.service():
        while not stop.wait(0.2):
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
