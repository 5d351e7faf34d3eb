"""The failpoints of the demonstration."""

from __future__ import annotations

from tideshift.failpoint import point

AFTER_KILL = point("demo.after_kill", "The worker is killed, no other one is started yet.")
BEFORE_PROOF = point("demo.before_proof", "The writers have stopped, their logs are not read yet.")
