"""Other lane tables for the soft RNIC of a live run: control/<node>.lanes.json, by the interfaces that they are for.

Whoever wants them writes the file and sends the NIC a SIGHUP; the NIC claims the file by renaming it, and removes it
when its ports arbitrate by them. Until it is claimed it may be taken back.
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


def claimed_path(path: Path) -> Path:
    """Where a NIC has put the tables that it is taking."""
    return path.with_suffix(".taken")


def write_tables(path: Path, tables: Mapping[str, LaneTable]) -> None:
    """Lays tables down, whole. Raises OSError."""
    write_whole(path, msgspec.json.encode(tables))


def read_tables(data: bytes) -> dict[str, LaneTable]:
    """The tables by interface. Raises ValueError (msgspec names the path)."""
    return msgspec.json.decode(data, type=dict[str, LaneTable])
