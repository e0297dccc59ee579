"""Tensor parallelism and absent experts as switches of the step's time: their arithmetic, and that off is off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.collectives import TensorParallel, tokens_of
from testbed.blink.expert_offload import ExpertOffload
from testbed.blink.modelled_steps import times_of
from testbed.blink.parameters import BlinkParameters
from testbed.blink.speculation import Speculation
from testbed.events.schema import TokensPublished
from testbed.serving.architectures import ARCHITECTURES
from testbed.serving.cost_model import CostModel, StepTime, read_profile
from testbed.serving.engine import Lane, lanes_time
from testbed.serving.graph_cache import CHUNK, DECODE, MIXED, PREFILL, Graph
from testbed.serving.models import MODELS
from testbed.serving.provisioning import provision
from tests.testbed.blink.world import World, small

LLAMA, MOE = ARCHITECTURES["llama-3-8b"], ARCHITECTURES["qwen-3-30b-a3b"]
STEP = StepTime(10_000_000, False)
LANE = Lane(1, 0, 500, (1, 2), 1.0, 1.0, 0, True)


def test_every_model_has_a_shape_and_the_experts_weigh_what_they_weigh() -> None:
    assert set(ARCHITECTURES) == set(MODELS)
    for name, shape in ARCHITECTURES.items():
        assert shape.all_expert_bytes < MODELS[name].weights_bytes
    assert (LLAMA.visits, MOE.visits) == (32, 48 * 8)
    assert MOE.expert_bytes == 3 * 2_048 * 768 * 2
    assert MOE.all_expert_bytes == pytest.approx(57.98e9, rel=1e-3)


@pytest.mark.parametrize(
    ("graph", "tokens"),
    [
        (Graph(PREFILL, 1, 512), 512), (Graph(DECODE, 8, 512), 8),
        (Graph(CHUNK, 1, 512, 64), 64), (Graph(MIXED, 8, 512, 64), 72),
    ],
)  # fmt: skip
def test_a_graph_computes_its_captured_tokens(graph: Graph, tokens: int) -> None:
    assert tokens_of(graph) == tokens


def test_two_gpus_halve_the_kernels_and_reduce_twice_a_layer() -> None:
    parallel = TensorParallel(gpus=2, latency=8_000, link_bytes_per_s=450_000_000_000)
    size = 16 * 4_096 * 2
    one = 8_000 + -(-size * 10**9 // 450_000_000_000)
    assert parallel.all_reduce(size) == one
    assert parallel.time(LLAMA, Graph(DECODE, 16, 512), STEP).duration == 5_000_000 + 64 * one


def test_a_proxy_costs_its_latency_for_every_collective() -> None:
    device, proxy = (TensorParallel(started_by=who) for who in ("device", "proxy"))
    graph = Graph(DECODE, 1, 512)
    more = proxy.time(LLAMA, graph, STEP).duration - device.time(LLAMA, graph, STEP).duration
    assert more == 2 * 32 * proxy.proxy_latency


@given(st.integers(2, 8), st.integers(1, 256))
def test_more_gpus_never_make_kernels_longer_nor_reduces_shorter(gpus: int, batch: int) -> None:
    one, more = TensorParallel(gpus=gpus), TensorParallel(gpus=min(8, gpus + 1))
    assert more.all_reduce(batch * 8_192) >= one.all_reduce(batch * 8_192)
    graph = Graph(DECODE, batch, 512)
    reduces = 64 * more.all_reduce(batch * 8_192)
    assert more.time(LLAMA, graph, STEP).duration - reduces == -(-STEP.duration // more.gpus)


def test_experts_that_are_all_there_cost_nothing() -> None:
    whole = ExpertOffload(share_in_hbm=1.0)
    assert whole.time(MOE, Graph(DECODE, 64, 512), STEP) == STEP
    assert whole.absent_bytes(MOE) == 0


def test_one_token_with_even_routing_misses_its_share() -> None:
    """8 of 128 experts, half of them absent: each absent one is chosen with 1 - (127/128)^8."""
    offload = ExpertOffload(share_in_hbm=0.5, skew=0.0, latency=0)
    missed = 64 * (1 - (127 / 128) ** 8)
    assert offload.missed(MOE, 1) == pytest.approx(missed)
    expected = 48 * missed * MOE.expert_bytes * 8 / 200e9 * 1e9
    assert offload.time(MOE, Graph(DECODE, 1, 512), STEP).duration - STEP.duration == pytest.approx(expected, abs=1)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4_096), st.floats(0, 3))
def test_less_in_hbm_misses_more_and_at_most_all(low: float, high: float, tokens: int, skew: float) -> None:
    low, high = sorted((low, high))
    few, many = ExpertOffload(share_in_hbm=low, skew=skew), ExpertOffload(share_in_hbm=high, skew=skew)
    assert few.missed(MOE, tokens) >= many.missed(MOE, tokens) >= 0
    assert few.missed(MOE, tokens) <= MOE.experts - few.resident(MOE) + 1e-9
    assert few.missed(MOE, tokens + 1) >= few.missed(MOE, tokens)


def test_skewed_routing_finds_more_in_hbm_than_even_routing() -> None:
    even, skewed = ExpertOffload(skew=0.0), ExpertOffload(skew=1.2)
    assert skewed.missed(MOE, 8) < even.missed(MOE, 8) / 2


def test_hbm_has_room_for_what_is_not_there() -> None:
    base = BlinkParameters(model="qwen-3-30b-a3b")
    offloaded = msgspec.structs.replace(base, expert_offload=ExpertOffload(share_in_hbm=0.25))
    split = msgspec.structs.replace(base, tensor_parallel=TensorParallel(gpus=2))
    assert base.weights_bytes() - offloaded.weights_bytes() == 96 * 48 * MOE.expert_bytes
    assert provision(offloaded).kv_blocks > provision(base).kv_blocks
    assert split.weights_bytes() * 2 == base.weights_bytes()
    assert split.kv_bytes_per_token() * 2 == base.kv_bytes_per_token()


def test_switches_that_are_off_leave_the_kernels_times() -> None:
    cost = CostModel(read_profile("llama-3-8b.toml"))
    times = times_of(BlinkParameters(), cost)
    for graph in (Graph(PREFILL, 1, 512), Graph(DECODE, 8, 512)):
        assert times(graph, [LANE]) == lanes_time(cost, graph, [LANE])


def test_switches_are_applied_one_behind_the_other() -> None:
    cost = CostModel(read_profile("qwen-3-30b-a3b.toml"))
    parallel, offload, drafts = TensorParallel(), ExpertOffload(), Speculation()
    parameters = BlinkParameters(
        model="qwen-3-30b-a3b", tensor_parallel=parallel, expert_offload=offload, speculation=drafts
    )
    graph = Graph(DECODE, 8, 512)
    step = offload.time(MOE, graph, parallel.time(MOE, graph, lanes_time(cost, graph, [LANE] * 8)))
    assert times_of(parameters, cost)(graph, [LANE] * 8) == drafts.time(cost, graph, step)


def test_scheduler_and_device_reckon_alike_and_tokens_stay_the_same() -> None:
    plain, split = World(), World(small(tensor_parallel=TensorParallel(gpus=4)))
    for world in (plain, split):
        world.submit("a", "x" * 50, max_tokens=12)
        world.settle()
    assert plain.tokens("a") == split.tokens("a")
    moments = [t for t, _, event in split.events if isinstance(event, TokensPublished)]
    cost = CostModel(read_profile("llama-3-8b.toml"))
    graph = Graph(DECODE, 1, 128)
    step = TensorParallel(gpus=4).time(LLAMA, graph, cost.decode(1, 51)).duration
    assert moments[1] - moments[0] == step + split.parameters.fire_and_forget_cost + split.parameters.scan_cost


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"tensor_parallel": {"gpus": 1}}, "$.tensor_parallel.gpus"),
        ({"tensor_parallel": {"started_by": "host"}}, "$.tensor_parallel.started_by"),
        ({"tensor_parallel": {"latency": -1}}, "latency must not be negative"),
        ({"expert_offload": {}}, "llama-3-8b has no experts"),
        ({"model": "qwen-3-30b-a3b", "expert_offload": {"share_in_hbm": 2}}, "$.expert_offload.share_in_hbm"),
        ({"model": "qwen-3-30b-a3b", "expert_offload": {"latency": -1}}, "latency must not be negative"),
    ],
)
def test_what_cannot_be_is_refused(told: dict[str, Any], says: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(told, BlinkParameters)
    assert says in str(caught.value)
