"""What every accelerator of a GPU node keeps, whoever computes: the cost model, or a process that measures.

A variant gives a `Bench`: the device with its memory, and `run_until`, which drives it in its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from testbed.blink.device import EmulatedDevice
from testbed.blink.launches import (
    LaunchGraph,
    LaunchRefused,
    SchedulerReturned,
    SchedulerStarted,
    TailLaunch,
    pack_extraction,
)
from testbed.blink.parameters import BlinkParameters
from testbed.blink.ring import RingView
from testbed.events.schema import DeviceFaulted, TokensSampled
from testbed.machine import Deliver, Effects, Emit
from testbed.network.memory_region import LocalMemory
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import DECODE, PREFILL, Graph

PREFILL_128 = Graph(PREFILL, 1, 128)
DECODE_4 = Graph(DECODE, 4, 128)
DECODE_2 = Graph(DECODE, 2, 128)


class AcceleratorBench(Protocol):
    """A device under test."""

    parameters: BlinkParameters
    memory: LocalMemory
    device: EmulatedDevice

    def now(self) -> int: ...

    def run_until(self, done: Callable[[list[Any]], bool]) -> list[Any]:
        """Wakes the device whenever it is due until `done` says so of all that came of it; fails after a bound."""
        ...

    def settle(self) -> list[Any]:
        """What else comes of it while nothing is asked."""
        ...


def told(effects: Effects) -> list[Any]:
    """Events and messages among effects."""
    return [effect.event if isinstance(effect, Emit) else effect.message for effect in effects
            if isinstance(effect, Emit | Deliver)]  # fmt: skip


def lanes(number: int, context: int = 20) -> tuple[Lane, ...]:
    return tuple(Lane(request, 0, context, (104, 101), 1.0, 1.0, request, True) for request in range(number))


def fire(bench: AcceleratorBench, launch: int, graph: Graph, number: int = 1) -> list[Any]:
    return told(bench.device.submit(bench.now(), LaunchGraph(launch, graph, lanes(number))))


def begin(bench: AcceleratorBench) -> None:
    """The host's launch of the scheduler."""
    assert bench.run_until(lambda found: len(found) == 1) == [SchedulerStarted(0)]


def sampled(found: list[Any]) -> list[int]:
    return [event.launch for event in found if isinstance(event, TokensSampled)]


class AcceleratorContract:
    """The suite; a variant's test class inherits it and has a fixture `bench`."""

    def test_every_launch_is_answered_once_and_in_order(self, bench: AcceleratorBench) -> None:
        begin(bench)
        graphs = [PREFILL_128, DECODE_4, DECODE_2]
        for launch, graph in enumerate(graphs, 1):
            assert fire(bench, launch, graph) == []
        found = bench.run_until(lambda found: len(sampled(found)) == 3)
        assert sampled(found) == [1, 2, 3]
        assert bench.settle() == []

    def test_results_are_in_the_extraction_buffer_when_it_says_so(self, bench: AcceleratorBench) -> None:
        begin(bench)
        fire(bench, 7, DECODE_4, 3)
        (event,) = bench.run_until(lambda found: bool(sampled(found)))
        words = RingView(bench.memory, bench.parameters.layout()).extraction[:3]
        assert [int(word) for word in words] == [pack_extraction(7, token) for token in event.tokens]
        assert event.requests == (0, 1, 2)

    def test_work_takes_time_and_a_queue_takes_the_sum(self, bench: AcceleratorBench) -> None:
        """Nanoseconds of the device: one graph is more than its launch, two are more than one."""
        begin(bench)
        start = bench.now()
        fire(bench, 1, PREFILL_128)
        bench.run_until(lambda found: bool(sampled(found)))
        one = bench.now() - start
        assert one > bench.parameters.fire_and_forget_cost
        start = bench.now()
        fire(bench, 2, PREFILL_128)
        fire(bench, 3, DECODE_4)
        fire(bench, 4, DECODE_2)
        bench.run_until(lambda found: len(sampled(found)) == 3)
        assert bench.now() - start > bench.parameters.fire_and_forget_cost
        assert one < 10_000_000_000, "a graph of 128 tokens is no matter of seconds: are these nanoseconds?"

    def test_the_same_lanes_give_the_same_tokens(self, bench: AcceleratorBench) -> None:
        begin(bench)
        fire(bench, 1, DECODE_4, 2)
        (first,) = bench.run_until(lambda found: bool(sampled(found)))
        fire(bench, 2, DECODE_2, 2)
        (second,) = bench.run_until(lambda found: bool(sampled(found)))
        assert first.tokens == second.tokens

    def test_a_tail_launch_waits_for_what_is_under_way(self, bench: AcceleratorBench) -> None:
        begin(bench)
        fire(bench, 1, DECODE_4)
        assert bench.device.submit(bench.now(), TailLaunch()) == ()
        assert bench.device.submit(bench.now(), SchedulerReturned()) == ()
        found = bench.run_until(lambda found: len(found) == 2)
        assert sampled(found[:1]) == [1]
        assert found[1] == SchedulerStarted(1)
        fire(bench, 2, DECODE_2)
        assert sampled(bench.run_until(lambda found: bool(sampled(found)))) == [2]

    def test_a_graph_that_runs_cannot_be_launched_again(self, bench: AcceleratorBench) -> None:
        begin(bench)
        fire(bench, 1, DECODE_4)
        refused = fire(bench, 2, DECODE_4)
        assert [type(each) for each in refused] == [DeviceFaulted, LaunchRefused]
        assert sampled(bench.run_until(lambda found: bool(sampled(found)))) == [1]
        assert bench.settle() == []

    def test_a_broken_rule_cancels_what_is_under_way(self, bench: AcceleratorBench) -> None:
        """After a sticky fault nothing comes any more, also of what the executor has begun."""
        begin(bench)
        fire(bench, 1, PREFILL_128)
        fire(bench, 2, DECODE_4)
        bad = fire(bench, 3, DECODE_2, 5)
        assert isinstance(bad[0], DeviceFaulted)
        assert bench.device.fault is not None
        assert sampled(bench.settle()) == []
        again = fire(bench, 4, DECODE_4)
        assert isinstance(again[1], LaunchRefused)
