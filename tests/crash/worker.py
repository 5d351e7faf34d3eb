"""A real worker process: owner and node with all their threads on the machine's own clock, until it is told to stop.

    python -m tests.crash.worker PATH [--freeze PLACE N]

With --freeze it stops itself (SIGSTOP) at the n-th pass of a place, in the thread that the place is about.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from tests.servers import end_with_parent
from tideshift import failpoint
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.errors import TideshiftError

PLACES = {
    "before begin": ("dxf.before_chunk", "tideshift-subtask"),
    "inside the transaction": ("ddl.after_copy_chunk", "tideshift-subtask"),
    "after commit": ("store.after_commit", "tideshift-subtask"),
    "owner before the swap": ("ddl.before_cutover", "tideshift-owner"),
}
"""The point, and the thread that is meant."""
ON_SERVERS = {**PLACES, "inside the swap": ("ddl.after_swap", "tideshift-owner")}
"""Where a server can end the session of who is frozen, also this."""
FROZEN = "frozen"


class Freeze:
    """Stops the process at the n-th pass of a point by a thread of this name."""

    def __init__(self, thread_name: str, passes: int) -> None:
        self.thread_name = thread_name
        self.left = passes

    def __call__(self, **context: object) -> None:
        """Count a pass; stop at the last one."""
        if not threading.current_thread().name.startswith(self.thread_name) or context.get("write") is False:
            return
        self.left -= 1
        if self.left == 0:
            print(FROZEN, flush=True)
            # Sent to this thread: sent to the process, another one may take it, and this one runs on for a moment.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--freeze", nargs=2, metavar=("PLACE", "N"))
    options = parser.parse_args()
    end_with_parent()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(threadName)s %(name)s %(message)s")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with connect(options.path, profile=FAST, actor="worker") as connected, connected.service() as service:
            if options.freeze:
                place, passes = options.freeze
                point, thread_name = ON_SERVERS[place]
                failpoint.enable(point, call=Freeze(thread_name, int(passes)))
            print(f"ready {service.node.name}", flush=True)
            ended.wait()
    except TideshiftError as error:
        sys.exit(f"{error.code}: {error.message}")


if __name__ == "__main__":
    main()
