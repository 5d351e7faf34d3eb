"""The names of everything that one job makes: distinct, plain ASCII, and recognisable as ours."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from tideshift.store.tables import NAMESPACE

__all__ = ["OWN_NAME", "Names"]

OWN_NAME = re.compile(rf"(?a:^{NAMESPACE}_[0-9]+_[0-9a-f]{{8}}_[a-z0-9_]+$)")
"""What all of these names match, and no system table does."""


@dataclass(frozen=True)
class Names:
    """The names for one job and table; none of them needs quoting."""

    job_id: int
    table: str

    @cached_property
    def prefix(self) -> str:
        """Return what they all begin with."""
        digest = hashlib.sha256(self.table.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{NAMESPACE}_{self.job_id}_{digest}"

    @property
    def shadow(self) -> str:
        """Return the table of the new shape; after the swap it holds the old rows."""
        return f"{self.prefix}_shadow"

    def index(self, number: int) -> str:
        """Return the shadow's index that answers to the source's n-th."""
        return f"{self.prefix}_index_{number}"

    def look_up_index(self, number: int) -> str:
        """Return an index of the shadow that only look-ups need."""
        return f"{self.prefix}_look_up_{number}"

    @property
    def log(self) -> str:
        """Return the key log."""
        return f"{self.prefix}_log"

    @property
    def canary(self) -> str:
        """Return the table whose rows tell of a VACUUM that gave new numbers."""
        return f"{self.prefix}_canary"

    @property
    def canary_index(self) -> str:
        """Return the canary's index."""
        return f"{self.prefix}_canary_index"

    @property
    def trial(self) -> str:
        """Return the temporary table of the new shape, which only one connection sees."""
        return f"{self.prefix}_trial"

    def trigger(self, event: str) -> str:
        """Return the capture trigger for an event such as `after_insert`."""
        return f"{self.prefix}_{event}"
