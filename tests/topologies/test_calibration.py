"""The self-test of the host: its figures, its bounds, and what a killed one leaves."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from testbed.events.fidelity_events import CpuMeasured
from testbed.network.wire_profile import MEASURED_SOURCE, PortBench, PortFigure, modelled
from testbed.units import SECOND
from topologies import reaper
from topologies.calibration import SOURCE, CannotMeasure, measure, profile_of, refuse_if_disturbed
from topologies.calibration_wire import RATES
from topologies.registry import RunRegistry, registered


@pytest.mark.parametrize(("packets", "budget"), [(1.0, 22_500), (30_000.4, 30_000), (1e9, 45_000)])
def test_a_disturbed_second_wrecks_no_plan(packets: float, budget: int) -> None:
    wire = [PortBench(90_000 + n, 200_000, 500_000, packets if rate == RATES[-1] else 0.0, 17_000)
            for n, rate in enumerate(RATES)]  # fmt: skip
    profile = profile_of(wire, {"rate_error": 0.99, "lateness_p99": 7}, 2, "2026-01-01T00:00:00+00:00")
    assert (profile.packets_per_s, profile.packet_cost, profile.verb_round_trip) == (budget, 17_000, 90_003)
    assert profile.ports[0] == PortFigure(RATES[0], 90_000, 500_000)
    assert len(profile.ports) == len(RATES)


@pytest.mark.parametrize(("busy", "ours_s", "refused"), [(55.0, 4.6, False), (56.1, 4.6, True), (5.0, 0.0, False)])
def test_figures_of_a_host_with_other_work_are_not_kept(busy: float, ours_s: float, refused: bool) -> None:
    """Ten seconds of CPU time on two cores."""
    cpu = CpuMeasured(0.0, busy, 2, 5 * SECOND)
    if not refused:
        refuse_if_disturbed(cpu, ours_s)
        return
    with pytest.raises(CannotMeasure, match="other processes had 10 % of the CPU meanwhile, 10 % is the limit"):
        refuse_if_disturbed(cpu, ours_s)


@pytest.mark.root
def test_the_host_is_measured_and_nothing_is_left() -> None:
    """Fault C18: the spread of round trips on this very host is measured before a run, and shown by doctor."""
    before = {other.label for other in registered()}
    try:
        profile = measure()
    except CannotMeasure as fault:
        pytest.skip(str(fault))
    assert profile.source == MEASURED_SOURCE
    assert 0.9 < profile.rate_error < 1.1
    assert 0 < profile.verb_round_trip <= profile.verb_round_trip_p99
    assert modelled(1).packets_per_s // 2 <= profile.packets_per_s
    assert tuple(port.rate_bits_per_s for port in profile.ports) == RATES
    # A slow port gives a READ what it is set to, or a little more (its burst); the fastest gives what the CPU can.
    assert 0.95 < profile.ports[0].read_share < 1.25
    assert profile.read_rate(60_000_000) < profile.read_rate(250_000_000) < profile.read_rate(1_000_000_000)
    assert {other.label for other in registered()} <= before


@pytest.mark.root
def test_of_a_killed_calibration_the_reaper_leaves_nothing() -> None:
    words = [sys.executable, "-m", "topologies", "calibrate"]
    with subprocess.Popen(words, cwd=SOURCE, stderr=subprocess.PIPE) as process:
        ours = None
        while ours is None and process.poll() is None:
            ours = next((other for other in registered() if _owned(other, process.pid) and other.processes()), None)
        if ours is None:
            assert process.stderr is not None
            pytest.skip(process.stderr.read().decode())
        time.sleep(1.0)
        process.kill()
    marks = ours.processes()
    reaped = reaper.reap(only=ours.label)
    assert not reaped.failed
    assert not ours.folder.exists()
    assert not any(mark.alive() for mark in marks)
    assert not reaper.reap(only=ours.label).removed


def _owned(registry: RunRegistry, pid: int) -> bool:
    record = registry.record()
    return record is not None and record.owner.pid == pid
