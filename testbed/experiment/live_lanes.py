"""Other lane tables for the soft RNIC of a live run: control/<node>.lanes.json, by the interfaces that they are for.

Whoever wants them writes the file and sends the NIC a SIGHUP; the NIC removes the file when it has taken them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from testbed.experiment.run_folder import write_whole
from testbed.network.lanes import LaneTable


def tables_path(folder: Path, node: str) -> Path:
    """Where the tables for a node's NIC lie, in the run's folder."""
    return folder / "control" / f"{node}.lanes.json"


def write_tables(path: Path, tables: Mapping[str, LaneTable]) -> None:
    """Lays tables down, whole. Raises OSError."""
    write_whole(path, msgspec.json.encode(tables))


def read_tables(data: bytes) -> dict[str, LaneTable]:
    """The tables by interface. Raises ValueError (msgspec names the path)."""
    return msgspec.json.decode(data, type=dict[str, LaneTable])
