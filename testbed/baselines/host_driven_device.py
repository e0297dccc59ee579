"""The GPU of a host-driven system: runs the graphs that are launched on it, in order, one at a time. No CPU.

Time comes from an executor, by default the engine's cost model; tokens from its text model. A lane whose last tokens
nobody on the host knows yet takes them from the device's own memory, where the sampling of the step before left them.
Launches and answers come and go over PCIe. It knows no requests beyond what lanes say, and no schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from testbed.events.host_events import GraphMeasured, LaunchGap
from testbed.events.schema import DeviceFaulted, TokensSampled
from testbed.machine import NOTHING, Deliver, Effect, Effects, Emit, MachineError, Message, UnexpectedMessage
from testbed.serving.device_faults import DEVICE_LOST, ILLEGAL_ADDRESS, INVALID_VALUE, LAUNCH_FAILURE, misfit
from testbed.serving.device_messages import ON_DEVICE, LaunchStep, StepDone, StepFailed
from testbed.serving.engine import Engine, Lane
from testbed.serving.executor import Ended, Executor, ModelledExecutor
from testbed.serving.graph_cache import PREFILL, GraphCache
from testbed.units import Nanoseconds


class _Running(NamedTuple):
    step: LaunchStep
    tokens: tuple[int, ...]
    modelled: Nanoseconds
    finish: Nanoseconds | None
    """None while only the executor knows."""


class LaunchedDevice:
    """The machine "device" of a GPU node; `owner` launches on it, as "node/machine"."""

    name = "device"

    def __init__(
        self,
        graphs: GraphCache,
        engine: Engine,
        *,
        executor: Executor | None = None,
        owner: str = "host0/worker",
    ) -> None:
        self._graphs = graphs
        self._engine = engine
        self._executor: Executor = executor or ModelledExecutor(engine)
        self._owner = owner
        self._running: deque[_Running] = deque()
        self._free_at: Nanoseconds | None = None
        """When the last graph that was timed ends or has ended."""
        self._began: Nanoseconds = 0
        """When the graph under way was seen to begin."""
        self._tails: dict[int, tuple[int, int]] = {}
        """Last two tokens of each sequence of the last decode step and the prefills since."""
        self.fault: str | None = None
        """Code of the fault that ended the device, or None."""
        self.extrapolated_steps = 0
        """Graphs whose time lay outside the profile's table."""

    def deadline(self) -> Nanoseconds | None:
        """When the next graph ends; 0, which has passed, where an executor has news."""
        if self._executor.waiting():
            return 0
        return self._running[0].finish if self._running else None

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a launch. What is refused comes back as an event and a message."""
        if not isinstance(message, LaunchStep):
            raise UnexpectedMessage(self.name, message, self.fault or "")
        out: list[Effect] = []
        if self.fault is not None:
            self._refuse(message.launch, LAUNCH_FAILURE, f"the device faulted before: {self.fault}", out)
        elif message.graph not in self._graphs:
            self._refuse(message.launch, INVALID_VALUE, f"{message.graph.name} was never captured", out)
        elif problem := misfit(message.graph, message.lanes):
            self._break(message.launch, ILLEGAL_ADDRESS, problem, out)
        else:
            self._begin(now, message, out)
        return out

    def wake(self, now: Nanoseconds) -> Effects:
        """Ends graphs that are due."""
        due = self.deadline()
        if due is None or now < due:
            return NOTHING
        out: list[Effect] = []
        for ended in self._executor.ended():
            self._settle(now, ended, out)
        while self._running and (finish := self._running[0].finish) is not None and finish <= now:
            self._complete(now, self._running.popleft(), out)
        return out

    def _begin(self, now: Nanoseconds, step: LaunchStep, out: list[Effect]) -> None:
        lanes = self._filled(step.lanes)
        if lanes is None:
            self._break(step.launch, ILLEGAL_ADDRESS, "a lane goes on from a step that has not been launched", out)
            return
        tokens = self._engine.sample(lanes)
        tails = {lane.request: (lane.tail[1], token) for lane, token in zip(lanes, tokens, strict=True)}
        self._tails = {**self._tails, **tails} if step.graph.kind == PREFILL else tails
        if not self._running:
            self._began = now
            if self._free_at is not None and any(lane.place for lane in lanes):
                out.append(Emit(LaunchGap(step.launch, now - self._free_at)))
        time = self._executor.begin(step.launch, step.graph, lanes)
        modelled = self._engine.step_time(step.graph, lanes)
        self.extrapolated_steps += modelled.extrapolated
        finish = None
        if time is not None:
            finish = self._free_at = max(now, self._free_at or 0) + time.duration
        self._running.append(_Running(step, tokens, modelled.duration, finish))

    def _filled(self, lanes: Sequence[Lane]) -> tuple[Lane, ...] | None:
        """The lanes with the tails that the device has; None where it does not have one."""
        if any(lane.tail == ON_DEVICE and lane.request not in self._tails for lane in lanes):
            return None
        return tuple(
            lane._replace(tail=self._tails[lane.request]) if lane.tail == ON_DEVICE else lane for lane in lanes
        )

    def _settle(self, now: Nanoseconds, ended: Ended, out: list[Effect]) -> None:
        """An executor's answer; one that is late ends the graph late."""
        if self.fault is not None:
            return
        if not self._running or self._running[0].step.launch != ended.launch:
            raise MachineError(f"the executor ended launch {ended.launch}, which is not the one under way")
        if ended.failure:
            self._break(ended.launch, DEVICE_LOST, ended.failure, out)
            return
        self._free_at = max(now, self._began + ended.duration)
        self._running[0] = self._running[0]._replace(finish=self._free_at)

    def _complete(self, now: Nanoseconds, running: _Running, out: list[Effect]) -> None:
        launch, tokens = running.step.launch, running.tokens
        out.append(Emit(TokensSampled(launch, tuple(lane.request for lane in running.step.lanes), tokens)))
        out.append(Emit(GraphMeasured(launch, running.modelled, now - self._began)))
        self._began = now
        out.append(Deliver(self._owner, StepDone(launch, tokens)))

    def _refuse(self, launch: int, code: str, detail: str, out: list[Effect]) -> None:
        out.append(Emit(DeviceFaulted(code, detail)))
        out.append(Deliver(self._owner, StepFailed(launch, code, detail)))

    def _break(self, launch: int, code: str, detail: str, out: list[Effect]) -> None:
        self.fault = code
        self._running.clear()
        self._executor.cancel()
        self._refuse(launch, code, detail, out)
