"""A foreground of updates at a fixed rate, in a process of its own: prints the latency of each in milliseconds as JSON at the end.

    python bench/postgres_writer.py URL TABLE ROWS PER_SECOND STOP_FILE
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from random import Random

import psycopg


def main() -> None:
    """Update random rows until the stop file is there; a statement that fails is counted."""
    url, table, rows, per_second, stop_file = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5])
    random, latencies, failures, rest = Random(1), [], 0, threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:
        print("ready", flush=True)
        due = time.monotonic()
        while not stop_file.exists():
            due += 1 / per_second
            rest.wait(max(0.0, due - time.monotonic()))
            begun = time.perf_counter()
            try:
                connection.execute(f"UPDATE {table} SET status = 'w', amount = amount + 1 WHERE id = {random.randrange(1, rows + 1)}".encode())
            except psycopg.Error:
                failures += 1
            latencies.append((time.perf_counter() - begun) * 1000)
            due = max(due, time.monotonic() - 1)
    print(json.dumps({"latencies": latencies, "failures": failures}), flush=True)


if __name__ == "__main__":
    main()
