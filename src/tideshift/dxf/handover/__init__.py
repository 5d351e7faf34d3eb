"""The hand-over from one subtask to the next on a node: finish and claim, many at a time, in one transaction."""
