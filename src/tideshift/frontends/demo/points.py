"""The failpoints of the demonstration."""

from __future__ import annotations

from tideshift.failpoint import point

BEFORE_PROOF = point("demo.before_proof", "The writers have stopped, their logs are not read yet.")
