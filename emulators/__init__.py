"""Emulated nodes: a process each, all I/O and no decisions. Knows testbed; never webui or topologies."""
