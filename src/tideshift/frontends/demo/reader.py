"""A reader in a process of its own: looks at orders as a shop's pages do, and logs how long each look took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tideshift.frontends.demo.shop import CUSTOMERS, open_shop
from tideshift.frontends.demo.stopping import StopSignal
from tideshift.frontends.demo.writer import FAILED

__all__ = ["main"]

_QUESTIONS = (
    "SELECT id, amount_cents, status FROM orders WHERE customer_id = ? ORDER BY placed_at DESC LIMIT 20",
    "SELECT o.id, p.name, o.quantity FROM orders o JOIN products p ON p.id = o.product_id WHERE o.customer_id = ? LIMIT 50",
    "SELECT count(*), sum(amount_cents) FROM orders WHERE customer_id = ?",
)


def main(arguments: Sequence[str]) -> int:
    """Read until stopped: PATH LOG SECONDS_BETWEEN."""
    path, log_path, pause_seconds = arguments
    stop, random = StopSignal(), Random(7)
    connection = open_shop(Path(path))
    with Path(log_path).open("a", encoding="utf-8") as log:
        while not stop.wait(float(pause_seconds)):
            begun = time.monotonic()
            try:
                connection.execute(random.choice(_QUESTIONS), (random.randint(1, CUSTOMERS),)).fetchall()
                operation = ["read"]
            except Exception as error:  # noqa: BLE001 - whatever it was, it is evidence
                operation = [FAILED, repr(error)]
            log.write(json.dumps([round(begun, 6), round(time.monotonic() - begun, 6), operation]) + "\n")
            log.flush()
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
