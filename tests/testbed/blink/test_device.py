"""The device against CUDA's rules: what it runs, and what it refuses as CUDA would."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.blink.device import FIRE_AND_FORGET_LIMIT, TAIL_LIMIT, EmulatedDevice
from testbed.blink.launches import LaunchGraph, LaunchRefused, SchedulerReturned, SchedulerStarted, TailLaunch
from testbed.blink.ring import RingView
from testbed.events.schema import DeviceFaulted, TokensSampled
from testbed.machine import Deliver, Effects, Emit, MachineError
from testbed.network.memory_region import PlainMemory
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine, Lane
from testbed.serving.graph_cache import DECODE, PREFILL, Graph
from testbed.serving.text_model import TextModel
from testbed.serving.tokens import ByteVocabulary
from tests.testbed.blink.world import TEXT, small

PARAMETERS = small()
COST = CostModel(read_profile("llama-3-8b.toml"))
DECODE_4 = Graph(DECODE, 4, 128)
DECODE_2 = Graph(DECODE, 2, 128)
LAUNCH, TAIL = PARAMETERS.fire_and_forget_cost, PARAMETERS.tail_launch_cost


class Bench:
    """A device with its scheduler's execution running."""

    def __init__(self) -> None:
        self.memory = PlainMemory(PARAMETERS.layout().size)
        engine = Engine(COST, TextModel(TEXT, ByteVocabulary()))
        self.device = EmulatedDevice(PARAMETERS, memory=self.memory, engine=engine)
        self.launches = 0
        assert self.device.deadline() == 0
        assert messages(self.device.wake(0)) == [SchedulerStarted(0)]

    def fire(self, now: int, graph: Graph = DECODE_4, lanes: int = 1, context: int = 20) -> Effects:
        self.launches += 1
        row = tuple(Lane(number, 0, context, (104, 101), 1.0, 1.0, number, True) for number in range(lanes))
        return self.device.submit(now, LaunchGraph(self.launches, graph, row))

    def finish(self) -> int:
        """Lets the graph in flight end; returns when."""
        end = self.device.deadline()
        assert end is not None
        assert any(isinstance(effect, Emit) for effect in self.device.wake(end))
        return end


def messages(effects: Effects) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Deliver)]


def code_of(effects: Effects) -> str:
    (fault,) = [effect.event for effect in effects if isinstance(effect, Emit)]
    (refused,) = messages(effects)
    assert isinstance(fault, DeviceFaulted)
    assert isinstance(refused, LaunchRefused)
    assert fault.code == refused.code
    return refused.code


def test_a_graph_runs_as_long_as_the_cost_model_says_and_leaves_its_tokens() -> None:
    bench = Bench()
    assert bench.fire(100, lanes=3) == ()
    expected = 100 + LAUNCH + COST.decode(4, 3 * 20).duration
    assert bench.device.deadline() == expected
    assert bench.device.wake(expected - 1) == []
    (emit,) = bench.device.wake(expected)
    assert isinstance(emit, Emit)
    assert isinstance(emit.event, TokensSampled)
    words = RingView(bench.memory, PARAMETERS.layout()).extraction
    assert [int(word) >> 32 for word in words[:4]] == [1, 1, 1, 0]
    assert tuple(int(word) & 0xFFFFFFFF for word in words[:3]) == emit.event.tokens
    assert bench.device.deadline() is None


def test_graphs_run_one_at_a_time_in_order_of_launch() -> None:
    bench = Bench()
    bench.fire(0)
    bench.fire(0, Graph(PREFILL, 1, 128))
    first = bench.finish()
    assert bench.finish() == first + COST.prefill(128).duration


def test_the_121st_launch_of_one_execution_is_a_fault_for_good() -> None:
    bench = Bench()
    now = 0
    for _ in range(FIRE_AND_FORGET_LIMIT):
        assert bench.fire(now) == ()
        now = bench.finish()
    assert code_of(bench.fire(now)) == "fireAndForgetLimitExceeded"
    assert code_of(bench.fire(now)) == "cudaErrorLaunchFailure"
    assert code_of(bench.device.submit(now, TailLaunch())) == "cudaErrorLaunchFailure"
    assert bench.device.fault == "fireAndForgetLimitExceeded"


def test_the_limit_is_a_total_even_if_none_is_outstanding_and_a_new_execution_resets_it() -> None:
    bench = Bench()
    now = 0
    for window in range(3):
        for _ in range(FIRE_AND_FORGET_LIMIT):
            assert bench.fire(now) == ()
            now = bench.finish()
        assert bench.device.submit(now, TailLaunch()) == ()
        assert bench.device.submit(now, SchedulerReturned()) == ()
        assert bench.device.deadline() == now + TAIL
        now += TAIL
        assert messages(bench.device.wake(now)) == [SchedulerStarted(window + 1)]


def test_a_tail_launch_waits_for_the_parent_and_all_its_children() -> None:
    bench = Bench()
    bench.fire(0)
    bench.device.submit(10, TailLaunch())
    end = bench.device.deadline()
    assert end is not None
    bench.device.submit(20, SchedulerReturned())
    assert bench.device.deadline() == end
    assert not messages(bench.device.wake(end))
    assert bench.device.deadline() == end + TAIL
    assert messages(bench.device.wake(end + TAIL)) == [SchedulerStarted(1)]


def test_without_the_parents_return_no_tail_launch_starts() -> None:
    bench = Bench()
    bench.device.submit(0, TailLaunch())
    assert bench.device.deadline() is None


def test_a_graph_that_is_still_running_cannot_be_launched_again() -> None:
    bench = Bench()
    bench.fire(0)
    assert code_of(bench.fire(1)) == "cudaErrorInvalidValue"
    assert bench.fire(1, DECODE_2) == ()
    bench.finish()
    end = bench.finish()
    assert bench.fire(end) == ()
    assert bench.device.fault is None


def test_two_self_relaunches_are_a_fault() -> None:
    bench = Bench()
    bench.device.submit(0, TailLaunch())
    assert code_of(bench.device.submit(1, TailLaunch())) == "cudaErrorInvalidValue"
    assert bench.device.fault is not None


@pytest.mark.parametrize("work", [LaunchGraph(1, DECODE_4, ()), TailLaunch()])
def test_a_scheduler_that_has_returned_can_launch_nothing(work: Any) -> None:
    bench = Bench()
    bench.device.submit(0, TailLaunch())
    bench.device.submit(0, SchedulerReturned())
    assert code_of(bench.device.submit(1, work)) == "schedulerEnded"


def test_a_scheduler_that_returns_without_a_tail_launch_ends_everything() -> None:
    bench = Bench()
    assert code_of(bench.device.submit(0, SchedulerReturned())) == "schedulerEnded"
    assert bench.device.deadline() is None


def test_a_graph_that_was_not_captured_is_refused() -> None:
    bench = Bench()
    assert code_of(bench.fire(0, Graph(DECODE, 3, 77))) == "cudaErrorInvalidValue"
    assert bench.device.fault is None


@pytest.mark.parametrize(("lanes", "context"), [(0, 10), (3, 10), (2, 129)])
def test_lanes_outside_the_captured_shape_are_an_illegal_address(lanes: int, context: int) -> None:
    bench = Bench()
    assert code_of(bench.fire(0, DECODE_2, lanes, context)) == "cudaErrorIllegalAddress"
    assert bench.device.fault is not None


def test_a_fault_loses_what_was_running() -> None:
    bench = Bench()
    bench.fire(0)
    bench.device.submit(0, TailLaunch())
    bench.device.submit(0, TailLaunch())
    assert bench.device.deadline() is None
    assert not RingView(bench.memory, PARAMETERS.layout()).extraction.any()


def test_other_work_is_our_mistake() -> None:
    with pytest.raises(MachineError, match="cannot run str"):
        Bench().device.submit(0, "work")


def test_it_counts_steps_that_no_table_covers() -> None:
    bench = Bench()
    bench.fire(0, context=20)
    assert bench.device.extrapolated_steps == 1


def tail(bench: Bench, graph: Graph, launch: int, tokens: int = 20) -> Effects:
    row = (Lane(0, 0, tokens, (104, 101), 1.0, 1.0, 0, True),)
    return bench.device.submit(0, LaunchGraph(launch, graph, row, "tail"))


def test_tail_launched_graphs_run_one_after_the_other_once_parent_and_children_are_over() -> None:
    bench = Bench()
    bench.fire(0)
    child = COST.decode(4, 20).duration + LAUNCH
    assert tail(bench, DECODE_2, 7) == ()
    assert tail(bench, Graph(DECODE, 1, 128), 8) == ()
    bench.device.submit(0, TailLaunch())
    bench.device.submit(0, SchedulerReturned())
    ends = [bench.finish(), bench.finish(), bench.finish()]
    second = child + TAIL + COST.decode(2, 20).duration
    third = second + TAIL + COST.decode(1, 20).duration
    assert ends == [child, second, third]
    assert bench.device.deadline() == third + TAIL
    assert messages(bench.device.wake(third + TAIL)) == [SchedulerStarted(1)]


def test_tail_launches_have_a_limit_of_their_own() -> None:
    """As many graphs of as many shapes, since one graph cannot be enqueued twice."""
    bench = Bench()
    bench.device._graphs = small(max_batch=256, slots=256, context_tokens=4_096).graphs()
    graphs = bench.device._graphs.decode.graphs[: TAIL_LIMIT + 1]
    assert len(graphs) == TAIL_LIMIT + 1
    for number, graph in enumerate(graphs[:-1], start=1):
        assert tail(bench, graph, number) == ()
    assert code_of(tail(bench, graphs[-1], 999)) == "tailLaunchLimitExceeded"


def test_a_graph_behind_the_self_relaunch_is_refused() -> None:
    bench = Bench()
    bench.device.submit(0, TailLaunch())
    assert code_of(tail(bench, DECODE_2, 3)) == "cudaErrorInvalidValue"


def test_a_fault_forgets_what_was_enqueued() -> None:
    bench = Bench()
    tail(bench, DECODE_2, 3)
    code_of(bench.device.submit(0, LaunchGraph(4, DECODE_4, ())))
    assert bench.device.submit(0, SchedulerReturned()) == ()
    assert bench.device.deadline() is None
