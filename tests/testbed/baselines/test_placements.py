from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import msgspec
import pytest

from testbed.baselines.host_driven_parameters import HostDrivenParameters, host_costs
from testbed.baselines.placed_parameters import PlacedCosts, PlacedParameters
from testbed.baselines.placements import (
    API,
    CORE,
    DEVICE,
    EMULATED,
    GPU,
    POINTS,
    RELAY,
    SERVER,
    STORED,
    WORKER,
    WRITER,
    Placement,
    travels_over_pcie,
    wired,
)

EVERY = [
    Placement(*axes)
    for axes in product(("host", "dpu"), ("host_dram", "direct"), ("host", "dpu", "gpu"), ("host", "dpu"))
]


@pytest.mark.parametrize("placement", EVERY, ids=lambda one: "-".join(msgspec.to_builtins(one).values()))
@pytest.mark.parametrize("stored", [False, True])
def test_every_combination_has_a_way_for_every_message(placement: Placement, stored: bool) -> None:
    route = placement.route(stored=stored)
    assert (route.requests[0], route.requests[-1]) == (API, CORE)
    assert (route.answers[0], route.answers[-1]) == (CORE, API)
    assert (route.launches, route.ends[0], route.ends[-1]) == ((WORKER, DEVICE), DEVICE, WORKER)
    assert (STORED in route.machines()) is stored
    nodes = placement.nodes()
    assert nodes[0] == SERVER == placement.place_of(API)
    assert placement.host in nodes
    assert nodes[-1] == GPU == placement.place_of(DEVICE)
    assert placement.place_of(CORE) == placement.place_of(WORKER)
    pairs = wired(placement, route)
    for one, other, of_device in route.legs():
        here, there = placement.place_of(one), placement.place_of(other)
        assert {here, there} <= set(nodes)
        if here != there and not travels_over_pcie(placement, here, there, of_device=of_device):
            assert (min(here, there), max(here, there)) in pairs


def test_the_payload_touches_host_memory_exactly_where_the_axis_says() -> None:
    for placement in EVERY:
        machines = placement.route(stored=False).machines()
        assert (WRITER in machines) is (placement.payload == "direct")
        assert (RELAY in machines) is (placement.payload == "host_dram" and placement.control != "host")
        ends = placement.route(stored=False).ends
        answers = placement.route(stored=False).answers
        assert (RELAY in ends) is (placement.payload == "host_dram" and placement.control == "dpu")
        assert (RELAY in answers) is (placement.payload == "host_dram" and placement.control == "gpu")


def test_a_request_is_never_written_after_it_has_left_ingress() -> None:
    for placement in EVERY:
        requests = placement.route(stored=True).requests
        if WRITER in requests:
            assert requests[1] == WRITER


def test_the_named_points() -> None:
    assert {name for name, point in POINTS.items() if point.extrapolated} == {"lynx", "conspirator", "os2g"}
    assert all(point.source for point in POINTS.values())
    assert POINTS["blink"].placement == Placement("dpu", "direct", "gpu")
    assert POINTS["splitrpc"].placement == Placement("host", "direct", "host")
    assert POINTS["os2g"].placement.storage == "dpu"
    for name in ("vllm", "sglang", "tensorrt-llm"):
        assert POINTS[name].placement == Placement("host", "host_dram", "host")
        assert POINTS[name].shape == name
    assert set(EMULATED) <= set(EVERY)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"point": "orca"}, "$.point"),
        ({"control": "cloud"}, "$.control"),
        ({"point": "vllm", "shape": "sglang"}, "point 'vllm' has the host loop 'vllm', not 'sglang'"),
        ({"dpu_slowdown": 0.5}, "dpu_slowdown must be at least 1, not 0.5"),
        ({"copy_us": -1.0}, "copy_us must not be negative"),
        ({"prompt_arena_tokens": 100}, "prompt_arena_tokens must be a positive multiple of 16, not 100"),
        ({"store_gbit_per_s": 0}, "store_gbit_per_s must be at least 1"),
        ({"payload": "direct", "ingres": "dpu"}, "unknown field `ingres`"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(given: dict[str, object], says: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, PlacedParameters)
    assert says in str(caught.value)


def test_axes_move_a_point() -> None:
    moved = PlacedParameters(point="tensorrt-llm", ingress="dpu", payload="direct", control="gpu")
    assert moved.placement() == POINTS["blink"].placement
    assert moved.names() == ("blink",)
    assert PlacedParameters(point="splitrpc").names() == ("splitrpc",)
    assert PlacedParameters(ingress="dpu").names() == ()
    assert PlacedParameters(point="vllm", control="gpu").loop_shape() == "vllm"


def test_the_hosts_own_point_costs_what_the_host_driven_server_costs() -> None:
    for shape in ("vllm", "sglang", "tensorrt-llm"):
        costs = PlacedCosts(PlacedParameters(point=shape, model="qwen-3-32b"))
        told = host_costs(HostDrivenParameters(shape=shape, model="qwen-3-32b"))
        for ours in (costs.api(), costs.control()):
            assert (ours.prepare_prefill(), ours.prepare(9), ours.update(9), ours.launch()) == (
                told.prepare_prefill(), told.prepare(9), told.update(9), told.launch(),
            )  # fmt: skip
            assert ours.take_in(100, text=True) == told.take_in(100, text=True)


def test_the_same_work_takes_a_dpu_longer_and_a_resident_scheduler_has_none_of_it() -> None:
    host = PlacedCosts(PlacedParameters()).control()
    dpu = PlacedCosts(PlacedParameters(control="dpu", dpu_slowdown=3.0)).control()
    gpu = PlacedCosts(PlacedParameters(control="gpu")).control()
    assert dpu.update(8) == pytest.approx(3 * host.update(8), rel=1e-6)
    assert dpu.prepare(5) == pytest.approx(3 * host.prepare(5), rel=1e-4)
    assert (gpu.prepare_prefill(), gpu.prepare(80), gpu.update(80), gpu.launch()) == (3_000, 3_000, 0, 2_000)


def test_a_direct_payload_spares_the_copy_that_a_prompt_has_in_the_loop() -> None:
    staged = PlacedCosts(PlacedParameters()).control()
    direct = PlacedCosts(PlacedParameters(payload="direct", copy_us=30.0)).control()
    assert staged.prepare_prefill() - direct.prepare_prefill() == 30_000
    assert staged.prepare(3) == direct.prepare(3)


def test_tokenising_on_a_dpu_is_blinks_and_text_is_made_on_its_slower_cores() -> None:
    host, dpu = PlacedCosts(PlacedParameters()).api(), PlacedCosts(PlacedParameters(ingress="dpu")).api()
    assert dpu.take_in(1_000, text=True) == 100_000
    assert dpu.take_in(1_000, text=False) == 0
    assert dpu.detokenise(10) == 2 * host.detokenise(10)


def test_storage_costs_its_client_and_its_bytes() -> None:
    one = PlacedParameters(stored_kib=2048, store_us=100.0, store_us_per_mib=50.0)
    assert PlacedCosts(one).fetch() == 200_000
    assert PlacedCosts(msgspec.structs.replace(one, storage="dpu")).fetch() == 400_000


def test_the_page_has_every_point_and_every_parameter_with_its_default() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/models/placements.md").read_text(encoding="utf-8")
    rows = {
        name: [cell.strip() for cell in cells.split("|")]
        for names, cells in re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| (.+) \|$", text, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", names)
    }
    for name, point in POINTS.items():
        placement = point.placement
        axes = [placement.ingress, placement.payload, placement.control, placement.storage]
        assert rows[name] == [*axes, "extrapolation" if point.extrapolated else ""]
    defaults = PlacedParameters()
    own = set(PlacedParameters.__struct_fields__) - set(HostDrivenParameters.__struct_fields__)
    assert own <= set(rows)
    for name in own - {"ingress", "payload", "control", "storage"}:
        default = getattr(defaults, name)
        shown = f"{default:,}" if isinstance(default, int) else str(default)
        assert shown in rows[name][0], name
