"""One file per kind of change: how it becomes stages."""
