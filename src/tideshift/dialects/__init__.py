"""One package per database: the only places where a database is named."""
