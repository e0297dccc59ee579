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
from testbed.experiment.twin import FrontDelays, NotMeasured, front_delays, twin_of, wire_check
from testbed.machine import Completion, Read, RemoteAddress
from testbed.metrics.hops import Hops, VerbTime
from testbed.metrics.latency import EVERYTHING
from testbed.network.memory_region import PlainMemory
from testbed.network.wire_profile import MEASURED_SOURCE, MODELLED, PortFigure, WireProfile

PROFILE = replace(
    MODELLED, source=MEASURED_SOURCE, measured_at="2026-01-01T00:00:00+00:00", verb_round_trip=300_000,
    ports=(PortFigure(60_000_000, 300_000, 9_000_000), PortFigure(600_000_000, 300_000, 1_712_288)),
)  # fmt: skip
"""At 555.6 Mbit/s, the kernel rate of the plan, READs get 378.1 Mbit/s."""
DELAYS = FrontDelays(to_front_end=900_000, to_client=600_000)
HOPS = Hops((), (), (150_000, 100_000, 200_000), (100_000,), (
    VerbTime("swap", 8, 10, 310_000), VerbTime("read", 8, 1, 900_000), VerbTime("read", 65_536, 50, 1_700_000),
))  # fmt: skip


def plans(*overrides: str, profile: WireProfile = PROFILE) -> tuple[Plan, Plan]:
    spec = read_spec(EXPERIMENTS / "blink" / "parity.toml", overrides)
    place = Place("blink", (), 0)
    wall = compile_plan(spec, place, run="r", label="abcdef", clock="wall", wire_profile=profile)
    return wall, compile_plan(spec, place, run="r", label="abcdef", clock="simulated")


def test_front_delays_are_medians_of_the_calibration() -> None:
    wall, _ = plans()
    assert front_delays(HOPS, wall) == DELAYS  # true times in the log, six times as long in wall time


def read_of_64_kib(plan: Plan) -> int:
    """How long the plan's wire takes for one, alone."""
    (region,) = plan.node("gpu0").regions
    wire = make_wire(plan, {("gpu0", region.name): PlainMemory(region.size)})
    wire.post(0, "dpu0", Read(ticket=1, peer="gpu0", remote=RemoteAddress(region.address, region.key), length=65_536))
    while (moment := wire.deadline()) is not None:
        if any(isinstance(message, Completion) for _, message in wire.wake(moment)):
            return moment
    raise AssertionError("the READ did not complete")


def test_without_figures_of_ports_the_wire_has_its_kernel_rate_and_says_that_it_is_modelled() -> None:
    wall, plain = plans(profile=MODELLED)
    twin = twin_of(wall, plain, DELAYS)
    rates = {port.rate_bits_per_s for port in twin.node("gpu0").ports}
    assert rates == {wall.node("gpu0").ports[0].kernel_rate_bits_per_s * 6}
    assert twin.wire_latency == round(MODELLED.verb_round_trip / 6) // 2
    assert "(modelled)" in twin.notes[-2]


@pytest.mark.parametrize(("gbit", "kernel"), [(21.6, 60_000_000), (216, 600_000_000)])
def test_a_twins_read_takes_as_long_as_the_profile_says(gbit: float, kernel: int) -> None:
    """The rate is worked out for one wire; here that wire is asked, at rates that the profile has measured."""
    wall, plain = plans(f"network.compute.rate_gbit_s={gbit}")
    assert {port.kernel_rate_bits_per_s for port in wall.node("gpu0").ports} == {kernel}
    (figure,) = (one for one in PROFILE.ports if one.rate_bits_per_s == kernel)
    assert read_of_64_kib(twin_of(wall, plain, DELAYS)) == pytest.approx(figure.bulk_read / 6, rel=0.01)
    assert PROFILE.read_time(kernel, 65_536, 4_096) == pytest.approx(figure.bulk_read, rel=0.001)


def test_verbs_of_a_run_are_held_against_the_profile() -> None:
    wall, _ = plans()
    check = wire_check([HOPS, HOPS], wall)
    assert check is not None
    assert (check.small_verb, check.small_verb_of_profile) == (310_000, 300_000)
    assert (check.read_bytes, check.read) == (65_536, 1_700_000)
    assert check.read_of_profile == pytest.approx(300_000 + 17 * 4_154 * 8e9 / 378_106_000, rel=0.001)
    assert check.words() == "small verb 310 us (wire profile 300 us), READ of 65,536 bytes 1,700 us (1,794 us)"
    unmeasured = wire_check([replace(HOPS, verbs=())], wall)
    assert unmeasured is not None
    assert unmeasured.words() == "small verb not measured (wire profile 300 us)"


@pytest.mark.parametrize("missing", ["to_front_end", "to_client"])
def test_a_calibration_that_lacks_a_part_is_named(missing: str) -> None:
    with pytest.raises(NotMeasured, match="the calibration run has no"):
        front_delays(replace(HOPS, **{missing: ()}), plans()[0])


def test_a_twin_has_the_emulations_times_divided_by_the_dilation() -> None:
    wall, plain = plans()
    twin = twin_of(wall, plain, DELAYS)
    assert (twin.wire_latency, twin.front_delay, twin.answer_delay) == (25_000, 150_000, 100_000)
    rates = {port.fabric: port.rate_bits_per_s for node in twin.nodes for port in node.ports}
    assert rates["compute"] == pytest.approx(378_106_000 * 6, rel=0.001)
    assert rates["front"] == {port.fabric: port.rate_bits_per_s for n in plain.nodes for port in n.ports}["front"]
    assert twin.seed == plain.seed == wall.seed
    assert twin.workload_seed == wall.workload_seed
    assert wall.wire_profile is not None
    assert "dilation 6" in twin.notes[-2]
    assert f"({MEASURED_SOURCE})" in twin.notes[-2]
    assert twin.notes[-1] == wall.wire_profile.words()
    assert plain.wire_latency == 1_000
    assert plain.answer_delay is None


def simulated(parent: Path, *overrides: str, twin: bool) -> SystemSummary:
    overrides = ("workload.requests=20", *overrides)
    prepared = prepare(read_spec(EXPERIMENTS / "blink" / "parity.toml", overrides), parent, clock="simulated")
    plan = prepared.plans[0]
    if twin:
        plan = twin_of(plans(*overrides)[0], plan, DELAYS)
    assert simulate(plan, prepared.folder).outcome == "passed"
    return summarise_system([results_of(prepared.folder)], EVERYTHING)


def test_a_twin_delivers_tokens_later_than_the_modelled_hardware_by_about_its_parts(tmp_path: Path) -> None:
    plain, twin = simulated(tmp_path, twin=False), simulated(tmp_path, twin=True)
    assert plain.publish_to_client_ms.mean is not None
    assert twin.publish_to_client_ms.mean is not None
    added = twin.publish_to_client_ms.mean - plain.publish_to_client_ms.mean
    # An answer's way (0.07 more than 0.03), metadata READ and token READ (0.05 each), 64 KiB at 2.4 Gbit/s (0.218);
    # polls are further apart by what a READ takes, and on average a token waits half of that.
    assert added == pytest.approx(0.07 + 0.1 + 0.22, abs=0.2)


def test_half_the_rate_moves_the_twin_by_what_64_kib_take_longer(tmp_path: Path) -> None:
    whole = simulated(tmp_path, twin=True)
    half = simulated(tmp_path, "network.compute.rate_gbit_s=100", twin=True)
    longer = PROFILE.read_time(277_777_778, 65_536, 4_096) - PROFILE.read_time(555_555_556, 65_536, 4_096)
    assert half.publish_to_client_ms.p50 is not None
    assert whole.publish_to_client_ms.p50 is not None
    # By the READ itself, and by half of it again: polls are further apart by it, and on average a token waits half.
    moved = half.publish_to_client_ms.p50 - whole.publish_to_client_ms.p50
    assert moved == pytest.approx(1.5 * longer / 6e6, abs=0.05)
