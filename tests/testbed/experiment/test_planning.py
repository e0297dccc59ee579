from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from testbed.experiment.complaints import SpecError
from testbed.experiment.packet_budget import packets_per_second
from testbed.experiment.plan import Plan, read_plan, write_plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import Place
from testbed.network.wire_profile import MODELLED

SMALLEST = b'name = "x"\ntitle = "X"\n[systems.blink]\nkind = "blink"\n'


def spec_with(*overrides: str) -> Spec:
    return spec_from_bytes(SMALLEST, "x.toml", overrides)


def plan_of(spec: Spec, clock: str = "wall", repeat: int = 0, label: str = "0a1b2c") -> Plan:
    place = Place("blink", (), repeat)
    if clock == "wall":
        return compile_plan(spec, place, run="20260101-000000-0a1b2c", label=label, clock="wall")
    return compile_plan(spec, place, run="20260101-000000-0a1b2c", label=label, clock="simulated")


def test_the_demo_nodes_have_the_agreed_names_roles_and_fabrics() -> None:
    plan = plan_of(spec_with())
    told = {node.name: (node.role, [(port.fabric, port.interface) for port in node.ports]) for node in plan.nodes}
    assert told == {
        "client0": ("client", [("front", "front0")]),
        "dpu0": ("dpu", [("front", "front0"), ("compute", "cnic0")]),
        "gpu0": ("gpu", [("compute", "cnic0")]),
        "host0": ("host", []),
    }
    assert [(fabric.name, fabric.mtu, fabric.roce) for fabric in plan.fabrics] == [
        ("front", 1500, False), ("compute", 4200, True),
    ]  # fmt: skip
    assert [region.name for region in plan.node("gpu0").regions] == ["ring"]


def test_a_plan_survives_its_file() -> None:
    plan = plan_of(spec_with('captures=[{node="gpu0",interface="cnic0"}]'))
    assert read_plan(write_plan(plan)) == plan


def test_both_ends_of_a_queue_pair_agree() -> None:
    for seed in range(40):
        plan = plan_of(spec_with(f"seed={seed}"))
        for node in plan.nodes:
            for pair in node.queue_pairs:
                (other,) = (back for back in plan.node(pair.peer).queue_pairs if back.peer == node.name)
                assert (pair.number, pair.initial_psn) == (other.peer_number, other.peer_psn)
                assert other.peer_address in {port.address for port in node.ports if port.interface == pair.interface}
                assert 0x100 <= pair.number < 1 << 24
                assert 0 <= pair.initial_psn < 1 << 24


def test_addresses_and_keys_are_unique_and_in_range() -> None:
    for seed in range(40):
        plan = plan_of(spec_with(f"seed={seed}"))
        ports = [port for node in plan.nodes for port in node.ports]
        assert len({port.address for port in ports}) == len(ports) == len({port.mac for port in ports})
        regions = [region for node in plan.nodes for region in node.regions]
        for region in regions:
            assert 0 < region.key < 1 << 32
            assert region.address % 4096 == 0
            assert region.address + region.size < 1 << 47
        for one, other in combinations(regions, 2):
            assert one.address + one.size <= other.address or other.address + other.size <= one.address
        for fabric in plan.fabrics:
            prefix = fabric.subnet.removesuffix("0/24")
            assert all(port.address.startswith(prefix) for port in ports if port.fabric == fabric.name)


def test_a_system_with_a_dilation_of_its_own_is_scaled_and_told_by_that() -> None:
    experiments, own = plan_of(spec_with("dilation=4.0")), plan_of(spec_with("systems.blink.dilation=4.0"))
    assert own.notes == experiments.notes
    assert (own.byte_scale, own.dilation) == (experiments.byte_scale, 4.0)
    assert own.byte_scale < plan_of(spec_with()).byte_scale


def test_a_port_that_a_systems_own_dilation_makes_too_slow_is_refused() -> None:
    with pytest.raises(SpecError, match="dilation 9000 an emulation's port has"):
        spec_with("byte_scale=60", "systems.blink.dilation=9000.0")


def test_a_plan_can_be_made_again_and_another_seed_makes_another() -> None:
    assert plan_of(spec_with()) == plan_of(spec_with())
    first, second = plan_of(spec_with()), plan_of(spec_with("seed=2"))
    assert first.node("gpu0").regions[0].key != second.node("gpu0").regions[0].key
    assert first.workload_seed != second.workload_seed
    assert plan_of(spec_with(), repeat=1).workload_seed != first.workload_seed


def test_macs_carry_the_label_and_are_locally_administered() -> None:
    for port in plan_of(spec_with(), label="c0ffee").node("dpu0").ports:
        assert port.mac.startswith("02:c0:ff:ee:")


def test_kernel_rates_are_true_rates_over_scale_and_dilation() -> None:
    plan = plan_of(spec_with("byte_scale=100", "dilation=4.0"))
    compute = plan.node("gpu0").ports[0]
    assert (compute.rate_bits_per_s, compute.kernel_rate_bits_per_s) == (200_000_000_000, 500_000_000)
    assert (plan.byte_scale, plan.dilation) == (100, 4.0)


def test_a_simulation_has_true_rates_and_time() -> None:
    plan = plan_of(spec_with("byte_scale=50", "dilation=4.0"), clock="simulated")
    assert (plan.byte_scale, plan.dilation) == (1, 1.0)
    assert all(
        port.rate_bits_per_s == port.kernel_rate_bits_per_s for node in plan.nodes for port in node.ports
    )
    assert any("do not apply" in note for note in plan.notes)


def test_that_dilation_does_not_stretch_a_hosts_real_work_is_said() -> None:
    kind = "systems={blink={kind='host-driven'}}"
    stretched = plan_of(spec_with(kind, "dilation=4.0"))
    assert any("does not stretch" in note and "1 ms takes 0.25 ms" in note for note in stretched.notes)
    for plan in (
        plan_of(spec_with(kind, "dilation=1.0")),
        plan_of(spec_with(kind, "dilation=4.0"), clock="simulated"),
        plan_of(spec_with("dilation=4.0")),
    ):
        assert not any("does not stretch" in note for note in plan.notes)


@pytest.mark.parametrize("path_mtu", [256, 1024, 4096])
@pytest.mark.parametrize("dilation", [1.0, 4.0, 10.0])
def test_the_packet_budget_is_kept_and_said(path_mtu: int, dilation: float) -> None:
    plan = plan_of(spec_with("byte_scale=1", f"dilation={dilation}", f"network.compute.path_mtu={path_mtu}"))
    rate = plan.node("gpu0").ports[0].kernel_rate_bits_per_s
    roce = [port for node in plan.nodes for port in node.ports if port.fabric != "front"]
    # All together: every packet passes the arbiter of one port and the same two cores.
    assert 0.9 * MODELLED.packets_per_s < len(roce) * packets_per_second(rate, path_mtu) <= MODELLED.packets_per_s
    assert plan.notes[0].startswith(f"byte_scale raised from 1 to {plan.byte_scale}")


def test_within_the_budget_nothing_is_changed() -> None:
    plan = plan_of(spec_with("byte_scale=400"))
    assert plan.byte_scale == 400
    assert not any("raised" in note for note in plan.notes)


def test_what_does_not_fit_the_device_is_refused_by_reading() -> None:
    with pytest.raises(Exception, match=r"systems\.blink: its memory: llama-3-8b needs .* bytes of HBM"):
        spec_with("systems.blink.hbm_bytes=1000000")


def test_the_parameters_and_the_workload_are_complete_in_the_plan() -> None:
    plan = plan_of(spec_with())
    assert plan.parameters["slots"] == 4096
    assert plan.workload["lengths"]["kind"] == "sharegpt"
    assert msgspec.json.decode(write_plan(plan))["workload"]["warm_up"] == {"requests": 0, "seconds": 0.0}
