"""The twin of an emulation: rates and delays worked out by hand, and the direction in which they move a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from testbed.command.places import EXPERIMENTS
from testbed.experiment.conclusion import results_of
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import read_spec
from testbed.experiment.simulation import make_wire
from testbed.experiment.summary import SystemSummary, summarise_system
from testbed.experiment.sweep import Place
from testbed.experiment.twin import NotMeasured, PartCosts, part_costs, twin_of
from testbed.machine import Completion, Read, RemoteAddress
from testbed.metrics.hops import Hops, VerbTime
from testbed.metrics.latency import EVERYTHING
from testbed.network.memory_region import PlainMemory

COSTS = PartCosts(verb_round_trip=300_000, wire_rate_bits_per_s=400_000_000, to_front_end=900_000, to_client=600_000)
HOPS = Hops((), (), (150_000, 100_000, 200_000), (100_000,), (
    VerbTime("swap", 8, 10, 300_000), VerbTime("read", 8, 1, 900_000), VerbTime("read", 65_536, 50, 1_348_576),
))  # fmt: skip


def plans(*overrides: str) -> tuple[Plan, Plan]:
    spec = read_spec(EXPERIMENTS / "blink" / "parity.toml", overrides)
    place = Place("blink", (), 0)
    wall = compile_plan(spec, place, run="r", label="abcdef", clock="wall")
    return wall, compile_plan(spec, place, run="r", label="abcdef", clock="simulated")


def test_part_costs_are_medians_of_the_calibration() -> None:
    wall, _ = plans()
    costs = part_costs(HOPS, wall)
    assert costs.verb_round_trip == 300_000
    # 16 packets of 4,096 bytes with 42 + 12 + 4 of headers, one of them at two ports, in 1,048,576 ns.
    assert costs.wire_rate_bits_per_s == 17 * (4_096 + 58) * 8 * 10**9 // 1_048_576
    assert (costs.to_front_end, costs.to_client) == (900_000, 600_000)  # true times, six times as long in wall time


def read_of_64_kib(plan: Plan) -> int:
    """How long the plan's wire takes for one, alone."""
    (region,) = plan.node("gpu0").regions
    wire = make_wire(plan, {("gpu0", region.name): PlainMemory(region.size)})
    wire.post(0, "dpu0", Read(ticket=1, peer="gpu0", remote=RemoteAddress(region.address, region.key), length=65_536))
    while (moment := wire.deadline()) is not None:
        if any(isinstance(message, Completion) for _, message in wire.wake(moment)):
            return moment
    raise AssertionError("the READ did not complete")


def test_without_large_reads_the_wire_has_its_kernel_rate() -> None:
    wall, _ = plans()
    small = replace(HOPS, verbs=(VerbTime("swap", 8, 10, 300_000), VerbTime("read", 4_096, 50, 310_000)))
    kernel = wall.node("gpu0").ports[0].kernel_rate_bits_per_s
    assert part_costs(small, wall).wire_rate_bits_per_s == kernel


def test_a_twins_read_takes_as_long_as_the_calibration_says() -> None:
    """The rate is worked out for one wire; here that wire is asked, at a rate beyond the kernel's (bursts) too."""
    wall, plain = plans("network.compute.rate_gbit_s=25")
    for bulk in (7_490_000, 9_000_000):
        measured = replace(HOPS, verbs=(VerbTime("swap", 8, 10, 330_000), VerbTime("read", 65_536, 50, bulk)))
        twin = twin_of(wall, plain, part_costs(measured, wall))
        assert read_of_64_kib(twin) == pytest.approx(bulk / 6, rel=0.01)


@pytest.mark.parametrize("missing", ["to_front_end", "to_client", "verbs"])
def test_a_calibration_that_lacks_a_part_is_named(missing: str) -> None:
    with pytest.raises(NotMeasured, match="the calibration run has no"):
        part_costs(replace(HOPS, **{missing: ()}), plans()[0])


def test_a_twin_has_the_emulations_times_divided_by_the_dilation() -> None:
    wall, plain = plans()
    twin = twin_of(wall, plain, COSTS)
    assert (twin.wire_latency, twin.front_delay, twin.answer_delay) == (25_000, 150_000, 100_000)
    rates = {port.fabric: port.rate_bits_per_s for node in twin.nodes for port in node.ports}
    assert rates["compute"] == 2_400_000_000  # 400 Mbit/s × 6
    assert rates["front"] == {port.fabric: port.rate_bits_per_s for n in plain.nodes for port in n.ports}["front"]
    assert twin.seed == plain.seed == wall.seed
    assert twin.workload_seed == wall.workload_seed
    assert wall.wire_profile is not None
    assert "dilation 6" in twin.notes[-2]
    assert twin.notes[-1] == f"not used by the twin, whose costs are calibrated: {wall.wire_profile.words()}"
    assert plain.wire_latency == 1_000
    assert plain.answer_delay is None


def simulated(parent: Path, *overrides: str, costs: PartCosts | None) -> SystemSummary:
    spec = read_spec(EXPERIMENTS / "blink" / "parity.toml", ("workload.requests=20", *overrides))
    prepared = prepare(spec, parent, clock="simulated")
    plan = prepared.plans[0]
    if costs is not None:
        plan = twin_of(compile_plan(spec, Place("blink", (), 0), run="r", label="abcdef", clock="wall"), plan, costs)
    assert simulate(plan, prepared.folder).outcome == "passed"
    return summarise_system([results_of(prepared.folder)], EVERYTHING)


def test_a_twin_delivers_tokens_later_than_the_modelled_hardware_by_about_its_parts(tmp_path: Path) -> None:
    plain, twin = simulated(tmp_path, costs=None), simulated(tmp_path, costs=COSTS)
    assert plain.publish_to_client_ms.mean is not None
    assert twin.publish_to_client_ms.mean is not None
    added = twin.publish_to_client_ms.mean - plain.publish_to_client_ms.mean
    # An answer's way (0.07 more than 0.03), metadata READ and token READ (0.05 each), 64 KiB at 2.4 Gbit/s (0.218);
    # polls are further apart by what a READ takes, and on average a token waits half of that.
    assert added == pytest.approx(0.07 + 0.1 + 0.22, abs=0.2)


def test_half_the_rate_moves_the_twin_by_what_64_kib_take_longer(tmp_path: Path) -> None:
    whole = simulated(tmp_path, costs=COSTS)
    half = simulated(
        tmp_path, costs=PartCosts(COSTS.verb_round_trip, 200_000_000, COSTS.to_front_end, COSTS.to_client)
    )
    assert half.publish_to_client_ms.p50 is not None
    assert whole.publish_to_client_ms.p50 is not None
    assert half.publish_to_client_ms.p50 - whole.publish_to_client_ms.p50 == pytest.approx(0.218, abs=0.2)
    assert half.publish_to_client_ms.p50 > whole.publish_to_client_ms.p50
