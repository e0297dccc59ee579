"""The emulated GPU: an accelerator that runs captured graphs launched from the device and obeys CUDA's rules.

It refuses what CUDA refuses (Programming Guide, "Device Graph Launch"): a 121st fire-and-forget graph in one
execution of the parent, a graph that is still running, a second self-relaunch; and a tail launch starts only when
the parent has returned and all its children are complete. Where the guide leaves the outcome undefined the device
faults for good, so that a scheduler that breaks a rule is caught. Graphs run one at a time, in order of launch.

Time comes from an executor, by default the engine's cost model; tokens come from its text model. Results go to the
extraction buffer in local memory and nowhere else. It knows no slots and no requests beyond what a graph's lanes say.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from testbed.blink.launches import (
    LaunchGraph,
    LaunchRefused,
    SchedulerReturned,
    SchedulerStarted,
    TailLaunch,
    pack_extraction,
)
from testbed.blink.parameters import BlinkParameters
from testbed.blink.speculation import NO_TOKEN
from testbed.events.schema import DeviceFaulted, TokensSampled
from testbed.machine import Deliver, Effect, Effects, Emit, MachineError
from testbed.network.memory_region import LocalMemory
from testbed.serving.device_faults import DEVICE_LOST, ILLEGAL_ADDRESS, INVALID_VALUE, LAUNCH_FAILURE, misfit
from testbed.serving.engine import Engine
from testbed.serving.executor import Ended, Executor, ModelledExecutor
from testbed.units import Nanoseconds

FIRE_AND_FORGET_LIMIT = 120
"""CUDA's rule, not a parameter: graphs fired and forgotten in one execution of their parent."""

LIMIT_EXCEEDED = "fireAndForgetLimitExceeded"
"""Our name: the guide gives the limit but no code, the summary says "undefined"."""
TAIL_LIMIT = 255
"""CUDA's rule: tail launches pending in one execution of their parent."""
TAIL_LIMIT_EXCEEDED = "tailLaunchLimitExceeded"
"""Our name: the guide gives the limit but no code."""
PARENT_ENDED = "schedulerEnded"
"""Our name: the scheduler returned without a tail launch, so nothing will ever run again."""


class _Running(NamedTuple):
    work: LaunchGraph
    tokens: tuple[tuple[int, ...], ...]
    """Of each lane; one, unless drafts were taken."""
    earliest: Nanoseconds
    """When it may begin: the launch has arrived."""
    finish: Nanoseconds | None
    """None while only the executor knows."""
    gap: Nanoseconds = 0
    """Between the end of what ran before and its start: a tail launch begins only then."""


class EmulatedDevice:
    """`Accelerator` of a GPU node. The host has launched the scheduler graph once, to start at `starts_at`."""

    def __init__(
        self,
        parameters: BlinkParameters,
        *,
        memory: LocalMemory,
        engine: Engine,
        executor: Executor | None = None,
        scheduler: str = "scheduler",
        starts_at: Nanoseconds = 0,
    ) -> None:
        self._memory = memory
        self._layout = parameters.layout()
        self._graphs = parameters.graphs()
        self._engine = engine
        self._speculation = parameters.speculation
        self._lane_words = parameters.lane_words
        self._executor: Executor = executor or ModelledExecutor(engine)
        self._scheduler = scheduler
        self._launch_cost = parameters.fire_and_forget_cost
        self._host_cost = parameters.host_launch_cost
        self._tail_cost = parameters.tail_launch_cost
        self._running: deque[_Running] = deque()
        self._free_at: Nanoseconds = starts_at
        self._executions = 0
        self._executing = False
        self._fired = 0
        self._tails: list[LaunchGraph] = []
        self._tail_enqueued = True
        self._tail_waits = False
        self._starts_at: Nanoseconds | None = starts_at
        self.fault: str | None = None
        """Code of the fault that ended the device, or None."""
        self.extrapolated_steps = 0
        """Graphs whose time lay outside the profile's table."""

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Takes a launch. What is refused comes back as an event and a message to the scheduler."""
        match work:
            case LaunchGraph():
                return self._fire(now, work)
            case TailLaunch():
                return self._enqueue_tail()
            case SchedulerReturned():
                return self._parent_returned(now)
            case _:
                raise MachineError(f"the device cannot run {type(work).__name__}")

    def wake(self, now: Nanoseconds) -> Effects:
        """Completes graphs that are due and starts the scheduler's next execution once it may."""
        out: list[Effect] = []
        for ended in self._executor.ended():
            self._settle(now, ended, out)
        while self._running and (finish := self._running[0].finish) is not None and finish <= now:
            self._complete(self._running.popleft(), out)
        if self._starts_at is not None and self._starts_at <= now and self.fault is None:
            self._starts_at = None
            self._tail_enqueued = False
            self._executing = True
            self._fired = 0
            out.append(Deliver(self._scheduler, SchedulerStarted(self._executions)))
            self._executions += 1
        return out

    def deadline(self) -> Nanoseconds | None:
        """When the next graph completes or the scheduler starts; 0, which has passed, where an executor has news."""
        if self._executor.waiting():
            return 0
        moments = [running.finish for running in self._running if running.finish is not None]
        if self._starts_at is not None and self.fault is None:
            moments.append(self._starts_at)
        return min(moments, default=None)

    def _fire(self, now: Nanoseconds, work: LaunchGraph) -> Effects:
        if self.fault is not None:
            return self._refuse(work.launch, LAUNCH_FAILURE, f"the device faulted before: {self.fault}")
        if not self._executing:
            return self._break(work.launch, PARENT_ENDED, "a launch from a scheduler that has returned")
        if work.mode == "fire_and_forget" and self._fired >= FIRE_AND_FORGET_LIMIT:
            return self._break(work.launch, LIMIT_EXCEEDED, f"launch {self._fired + 1} of one parent execution")
        if work.graph not in self._graphs:
            return self._refuse(work.launch, INVALID_VALUE, f"{work.graph.name} was never captured for device launch")
        if any(other.graph == work.graph for other in (*(running.work for running in self._running), *self._tails)):
            return self._refuse(work.launch, INVALID_VALUE, f"{work.graph.name} is still running")
        if problem := misfit(work.graph, work.lanes):
            return self._break(work.launch, ILLEGAL_ADDRESS, problem)
        if work.mode == "tail":
            return self._enqueue_graph(work)
        self._fired += work.mode == "fire_and_forget"
        self._begin(work, now + (self._host_cost if work.mode == "host" else self._launch_cost), gap=0)
        return ()

    def _enqueue_graph(self, work: LaunchGraph) -> Effects:
        """A tail launch of another graph: it runs when the parent is over, those enqueued first first."""
        if self._tail_enqueued:
            return self._refuse(work.launch, INVALID_VALUE, "a tail launch behind the self-relaunch is not modelled")
        if len(self._tails) >= TAIL_LIMIT:
            return self._refuse(work.launch, TAIL_LIMIT_EXCEEDED, f"{len(self._tails)} tail launches are pending")
        self._tails.append(work)
        return ()

    def _begin(self, work: LaunchGraph, earliest: Nanoseconds, gap: Nanoseconds) -> None:
        time = self._executor.begin(work.launch, work.graph, work.lanes)
        running = _Running(work, self._draw(work), earliest, None, gap)
        if time is not None:
            self.extrapolated_steps += time.extrapolated
            running = self._timed(running, time.duration)
        self._running.append(running)

    def _timed(self, running: _Running, duration: Nanoseconds) -> _Running:
        """The graph with its end, now that it is known how long it runs behind those before it."""
        self._free_at = max(running.earliest, self._free_at + running.gap) + duration
        return running._replace(finish=self._free_at)

    def _settle(self, now: Nanoseconds, ended: Ended, out: list[Effect]) -> None:
        """An executor's answer. What was measured is the time of the hardware; an answer that is late ends it late."""
        place = next((place for place, running in enumerate(self._running) if running.finish is None), None)
        if place is None or self._running[place].work.launch != ended.launch:
            if self.fault is not None:
                return
            raise MachineError(f"the executor ended launch {ended.launch}, which is not the next one under way")
        if ended.failure:
            out += self._break(ended.launch, DEVICE_LOST, ended.failure)
            return
        self._running[place] = self._timed(self._running[place], ended.duration)
        if self._free_at < now:
            self._free_at = now
            self._running[place] = self._running[place]._replace(finish=now)
        if self._tail_waits and place == len(self._running) - 1:
            self._tail_waits = False
            self._starts_at = self._free_at + self._tail_cost

    def _enqueue_tail(self) -> Effects:
        if self.fault is not None:
            return self._refuse(0, LAUNCH_FAILURE, f"the device faulted before: {self.fault}")
        if not self._executing:
            return self._break(0, PARENT_ENDED, "a tail launch from a scheduler that has returned")
        if self._tail_enqueued:
            return self._break(0, INVALID_VALUE, "a second self-relaunch is enqueued")
        self._tail_enqueued = True
        return ()

    def _parent_returned(self, now: Nanoseconds) -> Effects:
        self._executing = False
        if self.fault is not None:
            return ()
        if not self._tail_enqueued:
            return self._break(0, PARENT_ENDED, "the scheduler returned without a tail launch")
        # Children may still run; the tail launches wait for the last of them, and each for the one before it.
        tails, self._tails = self._tails, []
        for work in tails:
            self._begin(work, now + self._tail_cost, gap=self._tail_cost)
        last = self._running[-1].finish if self._running else now
        if last is None:
            self._tail_waits = True
        else:
            self._starts_at = max(last, now) + self._tail_cost
        return ()

    def _complete(self, running: _Running, out: list[Effect]) -> None:
        work = running.work
        drawn: list[tuple[int, int]] = []
        for place, (lane, tokens) in enumerate(zip(work.lanes, running.tokens, strict=True)):
            for word in range(self._lane_words):
                token = tokens[word] if word < len(tokens) else NO_TOKEN
                at = self._layout.extraction(place * self._lane_words + word)
                self._memory.store(at, pack_extraction(work.launch, token))
            if lane.draws:
                drawn += [(lane.request, token) for token in tokens]
        requests = tuple(request for request, _ in drawn)
        out.append(Emit(TokensSampled(work.launch, requests, tuple(token for _, token in drawn))))

    def _draw(self, work: LaunchGraph) -> tuple[tuple[int, ...], ...]:
        if self._speculation is not None:
            return self._speculation.draw(self._engine, work.graph, work.lanes)
        return tuple((token,) for token in self._engine.sample(work.lanes))

    def _refuse(self, launch: int, code: str, detail: str) -> Effects:
        return (Emit(DeviceFaulted(code, detail)), Deliver(self._scheduler, LaunchRefused(launch, code, detail)))

    def _break(self, launch: int, code: str, detail: str) -> Effects:
        self.fault = code
        self._running.clear()
        self._tails.clear()
        self._executor.cancel()
        return self._refuse(launch, code, detail)
