"""A self-test of the host, about eight seconds: what its wire can do, as a `WireProfile` (docs/models/fidelity.md).

What verbs take and packets a second are `topologies.calibration_wire`'s, through lanes as in a run; the rate error and
the sleeping process are `topologies.calibration_port`'s. The packet budget is bounded: never more than the modelled
figure, since in a run the machines need CPU as well, and never less than half of that, since a host that slow for a
second was disturbed, and a verdict judges the run itself. Where other processes had more than a tenth of the CPU
meanwhile, the figures would be theirs, and good for a week: then there are none.

Both are processes of a label with a record, in a cell, with mount and network namespaces that end with them: of a
calibration that was killed, the reaper removes everything.
"""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

import msgspec

from testbed.events.fidelity_events import CpuMeasured
from testbed.metrics.thresholds import THRESHOLDS
from testbed.network.wire_profile import MEASURED_SOURCE, PortBench, PortFigure, WireProfile, modelled
from testbed.units import SECOND
from topologies import cells, reaper
from topologies.calibration_wire import RATES
from topologies.cells import Cells
from topologies.meters import CpuMeter
from topologies.processes import SOURCE, die_with_parent
from topologies.registry import RunRecord, RunRegistry, mark_of, registered, registry_lock

_PATIENCE_S = 30.0
MOST_OTHERS = THRESHOLDS["other processes"].faithful
"""Percent of the machine's CPU time that strangers may have: as in a faithful run."""
# Names of network namespaces are mounts; in a private mount namespace they end with it.
_PRIVATE = 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec "$@"'


class CannotMeasure(Exception):
    """The host cannot be measured now; says why."""


def measure() -> WireProfile:
    """Measures. Raises `CannotMeasure`; leaves nothing behind."""
    reaper.reap()
    with ExitStack() as undo:
        registry = _registered()
        undo.callback(registry.remove)
        group = Cells(registry.label)
        undo.callback(group.remove)
        cell = group.make("calibration")
        run = partial(_printed, registry, cell)
        cpu, before = CpuMeter(), _spent_s()
        wire = msgspec.json.decode(run("topologies.calibration_wire"), type=list[PortBench])
        port = msgspec.json.decode(run("topologies.calibration_port", network=True))
        refuse_if_disturbed(cpu.measure(), _spent_s() - before)
    return profile_of(wire, port, len(os.sched_getaffinity(0)), datetime.now(UTC).isoformat(timespec="seconds"))


def refuse_if_disturbed(cpu: CpuMeasured, ours_s: float) -> None:
    """`cpu` of the whole machine, `ours_s` of what measured. Raises CannotMeasure."""
    had = cpu.cores * cpu.interval
    others = cpu.busy_percent - 100.0 * ours_s * SECOND / had
    if others > MOST_OTHERS:
        raise CannotMeasure(
            f"other processes had {others:.0f} % of the CPU meanwhile, {MOST_OTHERS:.0f} % is the limit"
        )


def _spent_s() -> float:
    """CPU seconds of this process's children that have ended, and of theirs."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def profile_of(wire: Sequence[PortBench], port: dict[str, Any], cores: int, measured_at: str) -> WireProfile:
    """The profile in the figures of the two measurements."""
    most, fastest = modelled(cores).packets_per_s, wire[-1]
    figures = zip(RATES, wire, strict=True)
    return WireProfile(
        source=MEASURED_SOURCE,
        measured_at=measured_at,
        verb_round_trip=round(median(one.verb_round_trip for one in wire)),
        verb_round_trip_p99=round(median(one.verb_round_trip_p99 for one in wire)),
        packet_cost=fastest.packet_cost,
        packets_per_s=max(most // 2, min(most, round(fastest.packets_per_s))),
        rate_error=round(port["rate_error"], 4),
        lateness_p99=port["lateness_p99"],
        ports=tuple(PortFigure(rate, one.verb_round_trip, one.bulk_read) for rate, one in figures),
    )


def _registered() -> RunRegistry:
    with registry_lock():
        live = [other.label for other in registered() if other.live()]
        if live:
            raise CannotMeasure(f"another run is live on this machine ({', '.join(live)})")
        registry = RunRegistry(secrets.token_hex(3))
        owner = mark_of(os.getpid(), "calibration")
        assert owner is not None
        registry.create(RunRecord(registry.label, str(registry.folder), owner, "namespace"))
    return registry


def _printed(registry: RunRegistry, cell: Any, module: str, *, network: bool = False) -> str:
    """What a module prints, run in a cell and in a mount namespace (and a network namespace) of its own."""
    command = ["unshare", "--mount", *(["--net"] if network else []), "sh", "-c", _PRIVATE, "sh"]

    def inside() -> None:
        cells.join(cell)
        die_with_parent()

    process = subprocess.Popen(
        [*command, sys.executable, "-m", module], cwd=SOURCE, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=inside,
        env={**os.environ, "TMPDIR": str(registry.folder)},
    )  # fmt: skip
    registry.note(process.pid, f"calibration {module}")
    try:
        out, said = process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired as fault:
        process.kill()
        process.wait()
        raise CannotMeasure(f"{module} took more than {_PATIENCE_S:.0f} s") from fault
    if process.returncode:
        raise CannotMeasure(f"{module}: {(said.strip().splitlines() or ['no word'])[-1]}")
    return out
