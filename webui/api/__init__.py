"""The REST API, version 1: what CI drives runs with. One JSON error shape for everything (design/console.md §4)."""
