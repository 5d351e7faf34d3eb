"""The distributed execution framework: a task, its steps and subtasks, over rows of a database."""
