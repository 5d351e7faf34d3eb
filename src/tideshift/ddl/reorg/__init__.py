"""What knows of a shadow table: its task types, catch-up, verification and cut-over."""
