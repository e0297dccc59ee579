"""The event log: one schema, one order, one writer a file (architecture §6)."""
