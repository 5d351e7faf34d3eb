"""PostgreSQL: so far the driver and the order of keys."""
