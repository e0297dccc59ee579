"""The engine core of a host-driven system: which sequences run, in which graph; after every step it is asked again.

Iteration-level scheduling (Orca) with continuous batching, paged KV and inline prefill, on the host's CPU. Policy, KV
pool, batch, graph grid and limits are those of Blink's resident scheduler; only the place differs. Every step comes
back here: its tokens are taken (host work), batch and block tables change, the next step goes to the worker.

Where scheduling is overlapped, one step is with the worker beyond the one on the device, so it was decided before the
tokens of the step ahead of it were known: a sequence whose length ends it is left out, since that is known; one that
a stop token ends, or whose client has left, has a lane in it for nothing, and its token is dropped. What such a lane
does to blocks that are free again harms nobody: the device runs graphs in order, so whoever has them writes later.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters
from testbed.baselines.host_driven_states import CORE_TABLE, CoreMove, CoreState
from testbed.baselines.host_messages import (
    AddRequest,
    RequestsFailed,
    RunStep,
    StepLost,
    StepOutput,
    StepTaken,
    WithdrawRequest,
)
from testbed.events.schema import BatchChanged, GraphSelected, TokensPublished
from testbed.machine import NOTHING, Compute, Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.batch import Batch, Generation
from testbed.serving.device_messages import ON_DEVICE
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import DECODE, PREFILL
from testbed.serving.host_work import HostWork, HostWorked
from testbed.serving.kv_blocks import BlockPool
from testbed.serving.policy import AdmissionPolicy, AdmissionView, Candidate, FirstComeFirstServed
from testbed.units import Nanoseconds

_FAILED = ("unavailable", "the GPU failed")


class Sequence(Generation):
    """A generation of the engine core."""

    __slots__ = ("ended", "pending")

    def __init__(self, added: AddRequest, blocks: tuple[int, ...]) -> None:
        prompt = added.prompt
        tail = (prompt[-2:][0], prompt[-1])
        super().__init__(added.request, len(prompt), added.max_tokens, added.sampling, tail, blocks)
        self.pending = 0
        """Lanes in steps whose tokens are not known yet."""
        self.ended = False
        """Its blocks are free; what still comes of it is dropped."""

    @property
    def goes_on(self) -> bool:
        """Whether another lane could bring a token, as far as is known."""
        return self.generated + self.pending < self.max_tokens

    def ended_by(self, eos: int) -> str | None:
        """Why no token follows the last one: stop or length; None where one does."""
        if self.tail[1] == eos and not self.sampling.ignore_eos:
            return "stop"
        return "length" if self.generated >= self.max_tokens else None

    def next_lane(self) -> Lane:
        """The lane after those that are pending; the device has the tail where there are any."""
        lane = self.lane()
        if not self.pending:
            return lane
        return lane._replace(place=lane.place + self.pending, context=lane.context + self.pending, tail=ON_DEVICE)


class Step(NamedTuple):
    """A step that the worker has."""

    launch: int
    members: tuple[Sequence, ...]


class LookAtTokens(Message, frozen=True):
    """To itself: the host work on the oldest tokens begins."""


class EngineCore:
    """The machine "core" of a host node."""

    name = "core"

    def __init__(
        self,
        parameters: HostDrivenParameters,
        costs: HostCosts,
        *,
        kv_blocks: int,
        eos: int,
        policy: AdmissionPolicy | None = None,
        api: str = "api",
        worker: str = "worker",
    ) -> None:
        """`kv_blocks` is what `provision` leaves; `eos` the vocabulary's."""
        self._costs = costs
        self._graphs = parameters.graphs()
        self._per_pause = parameters.prefills_per_pause
        self._depth = 2 if costs.loop.overlapped else 1
        self._pool = BlockPool(kv_blocks, parameters.kv_block_tokens)
        self._eos = eos
        self._policy = policy or FirstComeFirstServed()
        self._api, self._worker = api, worker
        self.state = CORE_TABLE.first
        self.batch: Batch[Sequence] = Batch(parameters.max_batch)
        self._waiting: dict[int, AddRequest] = {}
        self._admitted: deque[Sequence] = deque()
        self._sequences: dict[int, Sequence] = {}
        self._paused: frozenset[int] = frozenset()
        self._in_pause = False
        self._steps: deque[Step] = deque()
        self._taken: deque[StepTaken] = deque()
        self._launch = 0
        self._told: BatchChanged | None = None

    @property
    def kv_blocks_free(self) -> int:
        """KV blocks that no sequence holds."""
        return self._pool.free

    @property
    def requests(self) -> int:
        """Requests that wait or have blocks."""
        return len(self._waiting) + len(self._sequences)

    def deadline(self) -> None:
        """Never: messages alone move it."""

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # the contract
        """Nothing is ever due."""
        return NOTHING

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a request or its withdrawal, a step's tokens, or the end of the work on them."""
        out: list[Effect] = []
        match message:
            case AddRequest():
                self._add(message, out)
            case WithdrawRequest(request=request):
                self._withdraw(request)
            case StepTaken(launch=launch) if self._awaits(launch):
                self._taken.append(message)
            case LookAtTokens() if self.state is CoreState.UPDATING:
                step = self._steps[0]
                amount = self._costs.update(len(step.members))
                out.append(Compute(HostWork(step.launch, self.name, "update", amount)))
            case HostWorked() if self.state is CoreState.UPDATING:
                self._updated(out)
            case HostWorked() if self.state is CoreState.FAULTED:
                pass  # work that was under way when the device failed
            case StepLost() if self._steps:
                self._fail(out)
            case StepTaken() | StepLost() if self.state is CoreState.FAULTED:
                pass  # the other step of an overlapped pair
            case _:
                raise UnexpectedMessage(self.name, message, self.state.value)
        self._go_on(now, out)
        return out

    def _awaits(self, launch: int) -> bool:
        place = len(self._taken)
        return place < len(self._steps) and self._steps[place].launch == launch

    def _add(self, added: AddRequest, out: list[Effect]) -> None:
        if self.state is CoreState.FAULTED:
            out.append(Deliver(self._api, RequestsFailed((added.request,), *_FAILED)))
        elif self._blocks(added) > self._pool.total:
            detail = "the request needs more KV memory than the GPU has"
            out.append(Deliver(self._api, RequestsFailed((added.request,), "context_length_exceeded", detail)))
        else:
            self._waiting[added.request] = added

    def _withdraw(self, request: int) -> None:
        if self._waiting.pop(request, None) is None and (sequence := self._sequences.get(request)) is not None:
            self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        """Gives everything back, whatever the sequence is doing."""
        sequence.ended = True
        del self._sequences[sequence.request]
        self._pool.release(sequence.blocks)
        if sequence in self._admitted:
            self._admitted.remove(sequence)
        elif sequence in self.batch.members:
            self.batch.members.remove(sequence)

    def _go_on(self, now: Nanoseconds, out: list[Effect]) -> None:
        """One thing at a time: the next step while the worker has room for one, else the tokens that have come.

        That order is vLLM's (`step_with_batch_queue`) and SGLang's (`event_loop_overlap`): a core that is late lets
        the GPU begin before it looks at tokens.
        """
        if self.state in (CoreState.UPDATING, CoreState.FAULTED):
            return
        while len(self._steps) < self._depth and self._schedule(now, out):
            self.state = CORE_TABLE.after(self.state, CoreMove.SCHEDULE)
        if self._taken:
            self.state = CORE_TABLE.after(self.state, CoreMove.TAKE)
            # By way of itself: a worker in the same process asks for its work on the step that went out before that.
            out.append(Deliver(self.name, LookAtTokens()))
        elif not self._steps:
            self._tell_batch(out)

    def _schedule(self, now: Nanoseconds, out: list[Effect]) -> bool:
        """Gives the worker the next step, if there is anything to run."""
        running = [member for member in self.batch.members if member.goes_on]
        # Not while a pause's prefills go on, nor before the decode step after them: a running batch never starves.
        if not self._admitted and not (self._in_pause and running):
            self._admit(now, out)
        if self._admitted:
            member = self._admitted.popleft()
            self.batch.join(member)
            self._run(PREFILL, (member,), out)
            return True
        self._in_pause, self._paused = False, frozenset()
        if not running:
            return False
        self._tell_batch(out)
        self._run(DECODE, tuple(running), out)
        return True

    def _admit(self, now: Nanoseconds, out: list[Effect]) -> None:
        self._in_pause = False
        places = min(self.batch.places, self._per_pause)
        if not self._waiting or places < 1:
            return
        wanted = self._policy.lookahead or places
        candidates = []
        for _, added in zip(range(wanted), self._waiting.values(), strict=False):
            numbers = (added.request, len(added.prompt), added.max_tokens, self._blocks(added))
            candidates.append(Candidate(added.request, *numbers))
        view = AdmissionView(tuple(candidates), len(self.batch), places, self._pool.free)
        for candidate in self._policy.choose(now, view):
            blocks = self._pool.allocate(candidate.blocks)
            if blocks is None:
                break
            sequence = Sequence(self._waiting.pop(candidate.key), blocks)
            self._sequences[sequence.request] = sequence
            self._admitted.append(sequence)
        if self._admitted:
            self._in_pause = True
            self._paused = frozenset(member.request for member in self.batch.members)
            self._tell_batch(out)

    def _blocks(self, added: AddRequest) -> int:
        return self._pool.needed(len(added.prompt) + added.max_tokens)

    def _run(self, kind: str, members: tuple[Sequence, ...], out: list[Effect]) -> None:
        grid = self._graphs.prefill if kind == PREFILL else self._graphs.decode
        lanes = tuple(member.next_lane() for member in members)
        longest = max(lane.context for lane in lanes)
        choice = grid.choose(len(lanes), longest)
        self._launch += 1
        for member in members:
            member.pending += 1
        self._steps.append(Step(self._launch, members))
        requests = tuple(member.request for member in members)
        out.append(Emit(GraphSelected(self._launch, kind, choice.graph.name, requests, longest, choice.fallback)))
        out.append(Deliver(self._worker, RunStep(self._launch, choice.graph, lanes)))

    def _updated(self, out: list[Effect]) -> None:
        """The work on the oldest step's tokens is done: they are counted, and who has ended leaves."""
        step, taken = self._steps.popleft(), self._taken.popleft()
        self.state = CORE_TABLE.after(self.state, CoreMove.SETTLE if self._steps else CoreMove.DRAIN)
        wanted: list[tuple[Sequence, int, str | None]] = []
        for member, token in zip(step.members, taken.tokens, strict=True):
            member.pending -= 1
            if member.ended:
                continue
            member.push(token)
            reason = member.ended_by(self._eos)
            wanted.append((member, token, reason))
            if reason is not None:
                self._end(member)
        if not wanted:
            return
        requests = tuple(member.request for member, _, _ in wanted)
        out.append(Emit(TokensPublished(step.launch, requests, tuple(member.generated for member, _, _ in wanted))))
        tokens, reasons = tuple(token for _, token, _ in wanted), tuple(reason for _, _, reason in wanted)
        out.append(Deliver(self._api, StepOutput(requests, tokens, reasons)))

    def _fail(self, out: list[Effect]) -> None:
        """The device is of no use any more: everybody is told, nobody waits for ever."""
        self.state = CORE_TABLE.after(self.state, CoreMove.FAIL)
        everyone = (*self._sequences, *self._waiting)
        for sequence in tuple(self._sequences.values()):
            self._end(sequence)
        self._waiting.clear()
        self._steps.clear()
        self._taken.clear()
        if everyone:
            out.append(Deliver(self._api, RequestsFailed(everyone, *_FAILED)))
        self._in_pause, self._paused = False, frozenset()
        self._tell_batch(out)

    def _tell_batch(self, out: list[Effect]) -> None:
        paused = sum(member.request in self._paused for member in self.batch.members)
        running = len(self.batch) - paused
        event = BatchChanged(running, paused, len(self._waiting), self._pool.free, self._pool.total)
        if event != self._told:
            self._told = event
            out.append(Emit(event))
