"""A real process with a node and a would-be owner of the framework, which copies rows until it is killed.

    python -m tests.dxf.worker URL [--freeze POINT N]

With --freeze it stops itself (SIGSTOP) at the n-th pass of a point by a thread of a subtask.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from tests.databases import opened
from tests.servers import end_with_parent
from tideshift import failpoint
from tideshift.dxf.node import WorkerNode
from tideshift.dxf.owner import Owner
from tideshift.dxf.service import Service
from tideshift.dxf.tasktype import Registry
from tideshift.testing.cluster import framework_duties
from tideshift.testing.sample import CopyRows


def stop_here(passes: int):
    """Return what stops the process at the n-th pass of a subtask's thread."""
    left = [passes]

    def stop(**_):
        if threading.current_thread().name.startswith("tideshift-subtask"):
            left[0] -= 1
            if left[0] == 0:
                print("frozen", flush=True)
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    return stop


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--freeze", nargs=2, metavar=("POINT", "N"))
    options = parser.parse_args()
    end_with_parent()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(threadName)s %(name)s %(message)s")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    registry = Registry(CopyRows())
    with opened(options.url) as database:
        node = WorkerNode(database, registry, slots=2)
        with Service(database, Owner(database, holder=node.name, duties=framework_duties(database, registry)), node, version="test"):
            if options.freeze:
                failpoint.enable(options.freeze[0], "call", call=stop_here(int(options.freeze[1])))
            print(f"ready {node.name}", flush=True)
            while not ended.wait(0.1):  # ends: SIGTERM, or whoever started it
                continue


if __name__ == "__main__":
    main()
