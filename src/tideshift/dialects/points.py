"""The failpoints of the dialects: before each step that changes something in the user's database."""

from __future__ import annotations

from tideshift.failpoint import point

INSTALL_TABLE = point("dialect.install_table", "Shadow, one of its indexes, log or canary is about to be made.")
INSTALL_TRIGGER = point("dialect.install_trigger", "One capture trigger is about to be made.")
INSTALLED = point("dialect.installed", "Everything of a job was made and was seen in the catalogue, not yet committed.")
COPY_CLEAR = point("dialect.copy_clear", "The range of a chunk is about to be emptied in the shadow.")
COPY_INSERT = point("dialect.copy_insert", "The rows of a chunk are about to be inserted into the shadow.")
COPIED = point("dialect.copied", "The rows of a chunk are in the shadow, not yet committed.")
APPLY_DELETE = point("dialect.apply_delete", "The logged keys of a batch are about to be deleted from the shadow.")
APPLY_INSERT = point("dialect.apply_insert", "The current rows of a batch's keys are about to be inserted into the shadow.")
APPLY_CONSUME = point("dialect.apply_consume", "The rows of a batch are about to be removed from the log.")
SETTLE = point("dialect.settle", "A conflict was met and the whole log is about to be applied at once.")
SWAP_BEGIN = point("dialect.swap_begin", "A swap has found everything ready and is about to end capture.")
DROP_TRIGGER = point("dialect.drop_trigger", "One capture trigger is about to be dropped.")
SWAP_EXCHANGE = point("dialect.swap_exchange", "Capture is gone, source and shadow are about to change places.")
SWAP_EXCHANGED = point("dialect.swap_exchanged", "Source and shadow have changed places and the catalogue is about to be read again.")
SWAPPED = point("dialect.swapped", "The swap was seen in the catalogue, not yet committed.")
PURGE = point("dialect.purge", "Some rows of a table of ours are about to be deleted.")
DROP = point("dialect.drop", "An object of ours is about to be dropped.")
DISK_FREE = point("dialect.disk_free", "The free room on the disk was measured; a returned number of bytes takes its place.", returns=int)
FILL = point("dialect.fill", "The rows of a chunk are about to get their value in the new column.")
FILLED = point("dialect.filled", "The rows of a chunk have their value in the new column, not yet committed.")
CHANGE = point("dialect.change", "A change in one transaction is about to carry a statement out.")
CHANGED = point("dialect.changed", "A change in one transaction is done, not yet compared with the plan and not committed.")
