"""SQLite: a file with one writer at a time."""
