"""The database as tideshift uses it: transactions, drivers, typed keys, system tables, the lease and the event log."""
