"""The failpoints of the framework: around planning, scheduling moves, and the life of a subtask on a node."""

from __future__ import annotations

from tideshift.failpoint import point

AFTER_COMMAND_READ = point("dxf.after_command_read", "A command has read the task and decided, nothing is written yet.")
AFTER_TASK_READ = point("dxf.after_task_read", "The owner has read a task and begins no transaction for it yet.")
BEFORE_TASK_MOVE = point("dxf.before_task_move", "A task's move is about to be written.")
BEFORE_SUBTASK_MOVE = point("dxf.before_subtask_move", "A subtask's move is about to be written.")
AFTER_PLANNING = point("dxf.after_planning", "A step is planned, its subtasks are not inserted yet.")
BEFORE_START = point("dxf.before_start", "A node is about to start a subtask.")
BEFORE_CHUNK = point("dxf.before_chunk", "A chunk's transaction is about to begin.")
AFTER_CHUNK_WORK = point("dxf.after_chunk_work", "A chunk's work is done in its transaction, its checkpoint is not written yet.")
AFTER_CHECKPOINT = point("dxf.after_checkpoint", "A chunk's checkpoint is written and guarded, its commit comes next.")
AFTER_CHUNK = point("dxf.after_chunk", "A chunk and its checkpoint are committed.")
BEFORE_RESCUE = point("dxf.before_rescue", "The owner is about to take a subtask from a dead node.")
BEFORE_PULSE = point("dxf.before_pulse", "A small commit that is timed for an adaptive task comes next.")
BEFORE_HEARTBEAT = point("dxf.before_heartbeat", "A node is about to write its heartbeat.")
