"""How long a step of a host-driven server takes: the law of a serial loop, and what overlap hides, on the machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.clocks.pcie import LATENCY, RATE_BITS_PER_S, link_size
from testbed.events.host_events import GraphMeasured, HostOperation, LaunchGap
from testbed.events.schema import GraphLaunched, GraphSelected, TokensPublished, TokensSampled
from testbed.machine import Message
from testbed.serving.architectures import ARCHITECTURES
from testbed.serving.cost_model import StepTime
from testbed.serving.device_messages import LaunchStep, StepDone
from testbed.serving.engine import Lane
from testbed.serving.executor import Ended
from testbed.serving.graph_cache import Graph
from testbed.units import MICROSECOND, MILLISECOND, serialization_time
from tests.conformance.serving_world import Candidate, ServingWorld, ask, satisfied
from tests.conformance.test_serving_contract import host_driven

LAUNCH_US = 14.0
ONE_PROCESS = host_driven("sglang")
THREE_PROCESSES = host_driven("vllm")


class Metronome:
    """An executor whose graphs all take the same time."""

    def __init__(self, duration: int) -> None:
        self._duration = duration

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> StepTime:
        return StepTime(self._duration, extrapolated=False)

    def waiting(self) -> bool:
        return False

    def ended(self) -> Sequence[Ended]:
        return ()

    def cancel(self) -> None:
        pass


def stepped(candidate: Candidate, gpu_us: int, visits: Sequence[tuple[int, Message]] = (), **loop: Any) -> ServingWorld:
    """A run of steps of one length, with a host loop of which only `loop` is not nought."""
    nought = dict.fromkeys(("serial_us", "visit_ns", "hidden_us", "per_request_us", "per_prefill_us"), 0.0)
    more: dict[str, Any] = {**nought, "launch_us": LAUNCH_US, "orchestration": 1.0, **loop}
    visits = visits or [(1, ask("r", max_tokens=20))]
    return ServingWorld(candidate, visits, executor=Metronome(gpu_us * MICROSECOND), **more).run()


def periods(world: ServingWorld) -> list[int]:
    """From launch to launch of decode steps, without the first two."""
    moments = [t for t, event in world.events if isinstance(event, GraphLaunched) and event.kind == "decode"]
    return [after - before for before, after in pairwise(moments[2:])]


def pcie(message: Message) -> int:
    return LATENCY + serialization_time(link_size(message), RATE_BITS_PER_S)


ROUND_TRIP = pcie(LaunchStep(1, Graph("decode", 1, 128), (Lane(1, 1, 1, (1, 1), 1.0, 1.0, 1, True),))) + pcie(
    StepDone(1, (1,))
)
LAUNCH = round(LAUNCH_US * MICROSECOND)


@settings(max_examples=15)
@given(gpu_us=st.integers(500, 30_000), serial_us=st.integers(0, 20_000))
def test_a_serial_loop_has_the_throughput_one_over_gpu_and_host(gpu_us: int, serial_us: int) -> None:
    world = stepped(THREE_PROCESSES, gpu_us, overlapped=False, serial_us=float(serial_us))
    host = serial_us * MICROSECOND + LAUNCH + ROUND_TRIP
    assert set(periods(world)) == {gpu_us * MICROSECOND + host}


@settings(max_examples=15)
@given(gpu_us=st.integers(500, 30_000), serial_us=st.integers(0, 9_000), hidden_us=st.integers(0, 9_000))
def test_without_overlap_all_of_the_hosts_work_makes_the_gpu_wait(gpu_us: int, serial_us: int, hidden_us: int) -> None:
    world = stepped(
        ONE_PROCESS, gpu_us, overlapped=False, serial_us=float(serial_us), hidden_us=float(hidden_us)
    )
    assert set(periods(world)) == {(gpu_us + serial_us + hidden_us) * MICROSECOND + LAUNCH + ROUND_TRIP}


@settings(max_examples=20)
@given(
    gpu_us=st.integers(500, 30_000), serial_us=st.integers(0, 9_000), hidden_us=st.integers(0, 30_000), data=st.data()
)
def test_overlapped_work_costs_only_what_does_not_fit_beside_the_step(
    gpu_us: int, serial_us: int, hidden_us: int, data: st.DataObject
) -> None:
    candidate = data.draw(st.sampled_from((ONE_PROCESS, THREE_PROCESSES)))
    world = stepped(candidate, gpu_us, overlapped=True, serial_us=float(serial_us), hidden_us=float(hidden_us))
    gpu, hidden = gpu_us * MICROSECOND, hidden_us * MICROSECOND
    serial = serial_us * MICROSECOND + LAUNCH
    found, longest = periods(world), serial + max(gpu + ROUND_TRIP, hidden)
    if candidate is ONE_PROCESS or gpu >= hidden:
        assert set(found) == {longest}
    else:
        # A core with a process of its own works on while the worker prepares: less is seen of what does not fit.
        assert max(serial + gpu + ROUND_TRIP, hidden) * 0.99 <= sum(found) / len(found) <= longest


def test_more_requests_cost_the_host_more_and_a_prompt_costs_it_once() -> None:
    visits = [(1, ask(f"r{number}", max_tokens=30, seed=number)) for number in range(4)]
    world = stepped(ONE_PROCESS, 4_000, visits, overlapped=False, per_request_us=50.0, per_prefill_us=700.0)
    amounts = {
        operation: {event.amount for event in world.of(HostOperation) if event.operation == operation}
        for operation in ("prepare", "update", "launch")
    }
    assert amounts["prepare"] == {0, 700 * MICROSECOND}
    assert amounts["update"] <= {number * 50 * MICROSECOND for number in range(1, 5)}
    assert max(amounts["update"]) == 200 * MICROSECOND
    assert amounts["launch"] == {LAUNCH}


def test_a_token_costs_the_host_its_visits_to_layers_and_experts() -> None:
    visits = [(1, ask(f"r{number}", max_tokens=30, seed=number)) for number in range(4)]
    world = stepped(ONE_PROCESS, 4_000, visits, visit_ns=1_000.0)
    prepared = {event.amount for event in world.of(HostOperation) if event.operation == "prepare"}
    layers = ARCHITECTURES["llama-3-8b"].layers
    assert prepared <= {sequences * layers * MICROSECOND for sequences in range(5)}
    assert {0, layers * MICROSECOND, 4 * layers * MICROSECOND} <= prepared, "a prompt's launch, one's and everybody's"


@pytest.mark.parametrize("overlapped", [False, True])
def test_an_end_that_nobody_knew_costs_a_lane_of_one_step_where_scheduling_is_overlapped(overlapped: bool) -> None:
    visits = [(1, ask("r", "Alice", 200, 1)), (1, ask("s", "Alice", 200, 2))]
    world = ServingWorld(
        ONE_PROCESS, visits, {"r": satisfied("r", 10)}, executor=Metronome(5 * MILLISECOND), overlapped=overlapped
    ).run()
    number = world.number("r")
    sampled = sum(number in event.requests for event in world.of(TokensSampled))
    published = sum(number in event.requests for event in world.of(TokensPublished))
    # The client's departure finds the step that runs, and where scheduling is overlapped the one behind it as well.
    assert 0 < sampled - published <= (2 if overlapped else 1)


def test_a_stop_token_costs_one_wasted_lane_where_overlapped_and_a_known_length_costs_none() -> None:
    for overlapped in (False, True):
        prompt = "Alice was beginning to get very tired"
        visits = [(1 + n, ask(f"r{n}", prompt, 60, n, ignore_eos=False)) for n in range(9)]
        world = ServingWorld(THREE_PROCESSES, visits, overlapped=overlapped).run()
        reasons = [world.reason(f"r{n}") for n in range(9)]
        assert {"stop", "length"} == set(reasons)
        for n, reason in enumerate(reasons):
            number = world.number(f"r{n}")
            lanes = sum(number in event.requests for event in world.of(TokensSampled))
            wasted = lanes - len(world.tokens(f"r{n}"))
            # The step behind the one that drew the last token was launched already, unless nobody else was in it.
            assert wasted == (overlapped and reason == "stop")


def test_the_device_says_how_long_it_ran_and_stood_idle() -> None:
    world = stepped(THREE_PROCESSES, 6_000, overlapped=False, serial_us=1_000.0)
    assert {(event.modelled > 0, event.elapsed) for event in world.of(GraphMeasured)} == {(True, 6_000 * MICROSECOND)}
    gaps = world.of(LaunchGap)
    launches = [event.launch for event in world.of(GraphSelected) if event.kind == "decode"]
    assert [event.launch for event in gaps] == launches
    assert {event.gap for event in gaps} == {1_000 * MICROSECOND + LAUNCH + ROUND_TRIP}
