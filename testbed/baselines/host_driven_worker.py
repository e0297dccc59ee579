"""The worker of a host-driven system: before every step work on the host, then a launch over PCIe, then the tokens.

The GPU waits for the work between a step's tokens and the next launch. Where scheduling is overlapped the next step is
here already when tokens arrive, and it is launched before they are passed on; what the core does with them is then
beside the GPU's step. It knows no requests beyond what lanes say.
"""

from __future__ import annotations

from collections import deque

from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters
from testbed.baselines.host_driven_states import WORKER_TABLE, WorkerMove, WorkerState
from testbed.baselines.host_messages import RunStep, StepLost, StepTaken
from testbed.events.schema import DeviceFaulted, GraphLaunched
from testbed.machine import NOTHING, Compute, Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.device_messages import LaunchStep, StepDone, StepFailed
from testbed.serving.graph_cache import PREFILL
from testbed.serving.host_work import HostWork, HostWorked
from testbed.units import Nanoseconds


class Worker:
    """The machine "worker" of a host node; `device` is the machine that it launches on, as "node/machine"."""

    name = "worker"

    def __init__(
        self, parameters: HostDrivenParameters, costs: HostCosts, *, device: str = "gpu0/device", core: str = "core"
    ) -> None:
        self._costs = costs
        self._patience = parameters.completion_patience
        self._device, self._core = device, core
        self.state = WORKER_TABLE.first
        self._steps: deque[RunStep] = deque()
        """The one that is prepared, launched or runs, and those behind it."""
        self._held: StepTaken | None = None
        """Tokens that the core gets once the next step is launched."""
        self._deadline: Nanoseconds | None = None

    @property
    def steps(self) -> int:
        """Steps that have not ended."""
        return len(self._steps)

    def deadline(self) -> Nanoseconds | None:
        """When the device is given up."""
        return self._deadline

    def wake(self, now: Nanoseconds) -> Effects:
        """Gives the device up."""
        if self._deadline is None or now < self._deadline:
            return NOTHING
        out: list[Effect] = []
        detail = f"launch {self._steps[0].launch} has not ended"
        out.append(Emit(DeviceFaulted("completionTimeout", detail)))
        self._lose("completionTimeout", detail, out)
        return out

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a step to run, the end of a piece of work, or the device's answer."""
        out: list[Effect] = []
        match message:
            case RunStep() if self.state is WorkerState.LOST:
                out.append(Deliver(self._core, StepLost(message.launch, "lost", "the device failed before")))
            case RunStep():
                self._steps.append(message)
                if self.state is WorkerState.IDLE:
                    self._prepare(out)
            case HostWorked() if self.state is WorkerState.PREPARING:
                self.state = WORKER_TABLE.after(self.state, WorkerMove.LAUNCH)
            case HostWorked() if self.state is WorkerState.LAUNCHING:
                self._launched(now, out)
            case StepDone(launch=launch) if self._runs(launch):
                self._collect(message, out)
            case StepFailed(launch=launch) if self._runs(launch):
                self._lose(message.code, message.detail, out)
            case StepDone() | StepFailed() if self.state is WorkerState.LOST:
                pass  # an answer after all, when nobody waits for it any more
            case _:
                raise UnexpectedMessage(self.name, message, self.state.value)
        return out

    def _runs(self, launch: int) -> bool:
        return self.state is WorkerState.RUNNING and self._steps[0].launch == launch

    def _prepare(self, out: list[Effect]) -> None:
        self.state = WORKER_TABLE.after(self.state, WorkerMove.PREPARE)
        step = self._steps[0]
        prefill = step.graph.kind == PREFILL
        amount = self._costs.prepare_prefill() if prefill else self._costs.prepare(len(step.lanes))
        # Asked for together, so that nothing of a process that also has the core comes between them.
        out.append(Compute(HostWork(step.launch, self.name, "prepare", amount)))
        out.append(Compute(HostWork(step.launch, self.name, "launch", self._costs.launch())))

    def _launched(self, now: Nanoseconds, out: list[Effect]) -> None:
        self.state = WORKER_TABLE.after(self.state, WorkerMove.RUN)
        launch, graph, lanes = (step := self._steps[0]).launch, step.graph, step.lanes
        cost = self._costs.launch()
        out.append(Emit(GraphLaunched(launch, graph.kind, graph.name, "host", len(lanes), 0, 0, cost)))
        out.append(Deliver(self._device, LaunchStep(launch, graph, lanes)))
        self._deadline = now + self._patience
        if self._held is not None:
            out.append(Deliver(self._core, self._held))
            self._held = None

    def _collect(self, done: StepDone, out: list[Effect]) -> None:
        """The device's tokens are here."""
        self._steps.popleft()
        self._deadline = None
        taken = StepTaken(done.launch, done.tokens)
        if self._steps:
            self._held = taken
            self._prepare(out)
        else:
            self.state = WORKER_TABLE.after(self.state, WorkerMove.REST)
            out.append(Deliver(self._core, taken))

    def _lose(self, code: str, detail: str, out: list[Effect]) -> None:
        self.state = WORKER_TABLE.after(self.state, WorkerMove.LOSE)
        self._deadline = None
        launch = self._steps[0].launch
        self._steps.clear()
        out.append(Deliver(self._core, StepLost(launch, code, detail)))
