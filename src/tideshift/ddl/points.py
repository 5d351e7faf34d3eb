"""The failpoints of the DDL engine: around commands, the job's moves, and every stage."""

from __future__ import annotations

from tideshift.failpoint import point

AFTER_COMMAND_READ = point("ddl.after_command_read", "A command has read the job and decided, nothing is written yet.")
AFTER_SUBMIT = point("ddl.after_submit", "A job is submitted and acknowledged to the database, not yet to the client.")
AFTER_JOB_READ = point("ddl.after_job_read", "The owner has read a job and begins no transaction for it yet.")
BEFORE_JOB_MOVE = point("ddl.before_job_move", "A job's move is about to be written.")
BEFORE_CAPTURE = point("ddl.before_capture", "The capture stage's transaction has begun, nothing is made yet.")
AFTER_CAPTURE = point("ddl.after_capture", "Shadow, log and triggers are made, the job's move is not written yet.")
BEFORE_TASK = point("ddl.before_task", "A long stage is about to submit its task.")
BEFORE_CUTOVER = point("ddl.before_cutover", "A cut-over attempt is about to begin.")
IN_CUTOVER = point("ddl.in_cutover", "The log is drained under the lock, the swap comes next.")
AFTER_SWAP = point("ddl.after_swap", "The swap is done in its transaction, the job's move is not written yet.")
BEFORE_CHANGE = point("ddl.before_change", "The transaction of a change at once has begun, nothing is made yet.")
AFTER_CHANGE = point("ddl.after_change", "A change at once is done in its transaction, the job's move is not written yet.")
AFTER_SETTLE = point("ddl.after_settle", "A copy was brought to one instant with its source, not yet committed.")
AFTER_BUILD = point("ddl.after_build", "One index of a copy was built, not yet committed.")
BEFORE_LONG_STATEMENT = point("ddl.before_long_statement", "A long statement of the database's own is about to be run on a node.")
AFTER_LONG_STATEMENT = point("ddl.after_long_statement", "A statement that commits by itself has ended, its checkpoint is not written yet.")
BEFORE_INSPECT = point("ddl.before_inspect", "The swapped table is about to be inspected by another connection.")
BEFORE_LOSE_CAPTURE = point("ddl.before_lose_capture", "Room has run short, and what captures a job's writes is about to be dropped.")
BEFORE_UNDO = point("ddl.before_undo", "An artifact is about to be undone.")
BEFORE_PURGE_CHUNK = point("ddl.before_purge_chunk", "A chunk of rows of a replaced table is about to be deleted.")
BEFORE_DROP = point("ddl.before_drop", "An emptied table is about to be dropped.")
AFTER_COPY_CHUNK = point("ddl.after_copy_chunk", "A chunk is copied in its transaction, its checkpoint is not written yet.")
AFTER_FILL_CHUNK = point("ddl.after_fill_chunk", "A chunk of a new column is filled in its transaction, its checkpoint is not written yet.")
BEFORE_TIDY = point("ddl.before_tidy", "A range of a new column is filled, and the room of its rows' old versions is about to be given free.")
AFTER_TIDY = point("ddl.after_tidy", "That room is free, its checkpoint is not written yet.")
AFTER_COMPARE_FILLED = point("ddl.after_compare_filled", "A chunk of a new column was compared and recorded.")
AFTER_APPLY = point("ddl.after_apply", "A batch of the log is applied in its transaction, its commit is to come.")
AFTER_COMPARE = point("ddl.after_compare", "A chunk was compared; its result is not recorded yet.")
