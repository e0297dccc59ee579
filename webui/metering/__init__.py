"""Figures about the console itself for Prometheus: counted in each process, kept in the database, told at /metrics."""
