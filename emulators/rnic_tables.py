"""Other lane tables for a NIC that runs: taken from the run's control/ when somebody has laid them there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from emulators.rnic_journal import Journal
from emulators.rnic_ports import Port
from testbed.experiment.live_lanes import claimed_path, read_tables


def take_tables(path: Path, ports: Iterable[Port], journal: Journal) -> None:
    """Has ports arbitrate by the tables at `path`, if there are any. The file is claimed by renaming it, since whoever
    laid it there may take it back until then, and removed when they do; what is no table is said.
    """
    claimed = claimed_path(path)
    try:
        path.rename(claimed)
        tables = read_tables(claimed.read_bytes())
    except FileNotFoundError:
        return
    except ValueError as fault:
        journal.say(f"{path.name}: {fault}", "error")
        tables = {}
    for port in ports:
        if port.plan.interface in tables:
            port.use(tables[port.plan.interface])
            journal.say(f"lanes of {port.plan.interface} are those of another table")
    claimed.unlink()
