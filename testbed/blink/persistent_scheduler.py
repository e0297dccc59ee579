"""The GPU-resident scheduler: a loop that scans, claims, launches, watches the output and publishes. No host.

Blink's persistent kernel (summary, "resident scheduling kernel"; blink.md 2.1, 2.2) as a machine: one `_turn` between
two graphs, one `_look` when a graph should be done. The ring is handed to it as local memory; its loads, stores and
compare-and-swaps are immediate. Everything it must remember outlives the window, as in Blink, where it lies in
persistent GPU memory.

Where the real kernel polls without a break, this one sleeps until the moment at which a poll would first succeed (by
the same cost model that the device runs on, plus one scan) and then looks again every `completion_poll`. It knows
nothing of the DPU, of text or of a device's insides; a graph is opaque.
"""

from __future__ import annotations

from collections import deque
import numpy as np

from testbed.blink.admission import Admission, SlotGeneration, SlotMover
from testbed.blink.launch_window import LaunchWindow
from testbed.blink.launches import (
    LAUNCH_MASK,
    TOKEN_MASK,
    LaunchGraph,
    LaunchRefused,
    SchedulerReturned,
    SchedulerStarted,
    TailLaunch,
)
from testbed.blink.parameters import BlinkParameters
from testbed.blink.ring import FinishReason, RingView
from testbed.blink.scheduler_states import SCHEDULER_TABLE, SchedulerMove, SchedulerState
from testbed.blink.slots import STATE_MASK, SlotMove, SlotState, cancelled, incarnation_of
from testbed.events.schema import (
    BatchChanged,
    DeviceFaulted,
    GraphLaunched,
    GraphSelected,
    LineLogged,
    TokensPublished,
    WindowRelaunched,
)
from testbed.machine import NOTHING, Compute, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.network.memory_region import LocalMemory
from testbed.serving.batch import Batch
from testbed.serving.cost_model import CostModel
from testbed.serving.engine import step_time
from testbed.serving.graph_cache import DECODE, PREFILL
from testbed.serving.kv_blocks import BlockPool
from testbed.serving.policy import AdmissionPolicy, FirstComeFirstServed
from testbed.units import Nanoseconds


class PersistentScheduler:
    """The machine "scheduler" of a GPU node."""

    name = "scheduler"

    def __init__(
        self,
        parameters: BlinkParameters,
        *,
        memory: LocalMemory,
        cost_model: CostModel | None,
        kv_blocks: int,
        eos: int,
        policy: AdmissionPolicy | None = None,
    ) -> None:
        """`memory` is the ring's region; `kv_blocks` what `provision` leaves; `eos` the vocabulary's.

        `cost_model` only spares looks at the output before it can be there; None where no model knows when.
        """
        self._parameters = parameters
        self._graphs = parameters.graphs()
        self._cost_model = cost_model
        self._eos = eos
        self._ring = RingView(memory, parameters.layout())
        self._mover = SlotMover(self._ring)
        self._pool = BlockPool(kv_blocks, parameters.kv_block_tokens)
        self._admission = Admission(self._ring, self._pool, policy or FirstComeFirstServed(), parameters.context())
        self.state = SCHEDULER_TABLE.first
        self.batch: Batch[SlotGeneration] = Batch(parameters.max_batch)
        self.window = LaunchWindow(parameters.window)
        self._paused = 0
        self._in_pause = False
        self._admitted: deque[SlotGeneration] = deque()
        self._in_flight: list[SlotGeneration] = []
        self._launch = 0
        self._give_up: Nanoseconds = 0
        self._returned_at: Nanoseconds = 0
        self._idle_interval = parameters.scan_cost
        self._deadline: Nanoseconds | None = None
        self._told: BatchChanged | None = None

    @property
    def kv_blocks_free(self) -> int:
        """KV blocks that no generation holds."""
        return self._pool.free

    def deadline(self) -> Nanoseconds | None:
        """The next scan or look."""
        return self._deadline

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes the start of an execution, or the return code of a launch that failed."""
        out: list[Effect] = []
        match message:
            case SchedulerStarted() if self.state is SchedulerState.ABSENT:
                self._start(now, message, out)
            case LaunchRefused() if self.state is not SchedulerState.FAULTED:
                self._fail(now, out)
            case LaunchRefused():
                pass  # the second refusal of one fault (a tail launch after a launch) says nothing new
            case _:
                raise UnexpectedMessage(self.name, message, self.state.value)
        return out

    def wake(self, now: Nanoseconds) -> Effects:
        """Ends a scan, or looks for the output of the graph in flight."""
        if self._deadline is None or now < self._deadline:
            return NOTHING
        out: list[Effect] = []
        match self.state:
            case SchedulerState.SCANNING:
                self._turn(now, out)
            case SchedulerState.PREFILLING | SchedulerState.DECODING:
                self._look(now, out)
            case SchedulerState.FAULTED:
                self._admission.refuse(self._admission.scan(), FinishReason.FAULT, out)
                self._deadline = now + self._parameters.idle_scan_limit
        return out

    def _start(self, now: Nanoseconds, message: SchedulerStarted, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.START)
        if message.execution:
            launches = self.window.renew()
            out.append(Emit(WindowRelaunched(self.window.index, launches, now - self._returned_at)))
        # The first scan of an execution ends one scan later: nothing ran before that could have hidden it.
        self._deadline = now + self._parameters.scan_cost

    def _turn(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Between two graphs: a scan has just ended. Admit, go on, relaunch, or scan again."""
        if self._may_admit():
            self._in_pause = False
            self._review(self.batch.members, out)
            pending = self._admission.scan()
            # A pause needs a pending prompt, a place in the batch, and room in the window (the three conditions).
            places = min(self.batch.places, self._parameters.prefills_per_pause, self.window.left - 1)
            admitted = self._admission.admit(now, pending, len(self.batch), places, out)
            if admitted:
                self._pause(admitted, out)
            elif self._must_relaunch(len(pending)):
                self._relaunch(now, out)
                return
        self._review(self._admitted, out)
        if self._admitted:
            self._launch_prefill(now, self._admitted.popleft(), out)
        elif self.batch.members:
            self._resume(out)
            self._tell_batch(out)
            self._launch_decode(now, out)
        else:
            self._in_pause = False
            self._tell_batch(out)
            self._deadline = now + self._idle_interval
            self._idle_interval = max(
                self._parameters.scan_cost, min(2 * self._idle_interval, self._parameters.idle_scan_limit)
            )

    def _may_admit(self) -> bool:
        """Not while a pause's prefills go on, nor before the decode step after them: a running batch never starves."""
        return not self._admitted and not (self._in_pause and self.batch.members)

    def _must_relaunch(self, pending: int) -> bool:
        if not self.window.left:
            return True
        # One launch is left and nobody runs who could use it: a prompt must not wait for a decode that never comes.
        return pending > 0 and not self.batch.members and not self.window.has_room(1)

    def _relaunch(self, now: Nanoseconds, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.RETURN)
        self._deadline = None
        self._returned_at = now
        out.extend((Compute(TailLaunch()), Compute(SchedulerReturned())))

    def _pause(self, admitted: list[SlotGeneration], out: list[Effect]) -> None:
        self._in_pause = True
        self._admitted.extend(admitted)
        self._paused = len(self.batch)
        self._move_batch(SlotMove.PAUSE, out)
        self._tell_batch(out)

    def _resume(self, out: list[Effect]) -> None:
        self._in_pause = False
        if self._paused:
            self._paused = 0
            self._move_batch(SlotMove.RESUME, out)

    def _move_batch(self, move: SlotMove, out: list[Effect]) -> None:
        """Pauses or resumes whom the move concerns: those who joined during a pause were never paused."""
        for member in self.batch.members:
            if self._is_in(member, _FOUND_IN[move]):
                self._mover.move(member.slot, member.incarnation, move, member.request, out)

    def _is_in(self, member: SlotGeneration, state: SlotState) -> bool:
        return int(self._ring.states[member.slot]) & STATE_MASK == state

    def _launch_prefill(self, now: Nanoseconds, member: SlotGeneration, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.LAUNCH_PREFILL)
        self._fire(now, PREFILL, [member], out)

    def _launch_decode(self, now: Nanoseconds, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.LAUNCH_DECODE)
        self._fire(now, DECODE, list(self.batch.members), out)

    def _fire(self, now: Nanoseconds, kind: str, members: list[SlotGeneration], out: list[Effect]) -> None:
        grid = self._graphs.prefill if kind == PREFILL else self._graphs.decode
        longest = max(member.context for member in members)
        choice = grid.choose(len(members), longest)
        self._launch = (self._launch + 1) & LAUNCH_MASK or 1
        launch, graph, cost = self._launch, choice.graph, self._parameters.fire_and_forget_cost
        requests = tuple(member.request for member in members)
        in_window = self.window.take()
        out += (
            Emit(GraphSelected(launch, kind, graph.name, requests, longest, choice.fallback)),
            Emit(
                GraphLaunched(
                    launch, kind, graph.name, "fire_and_forget", len(members), self.window.index, in_window, cost
                )
            ),
            Compute(LaunchGraph(launch, graph, tuple(member.lane() for member in members))),
        )
        self._in_flight = members
        expected = 0
        if self._cost_model is not None:
            expected = step_time(self._cost_model, graph, sum(member.context for member in members)).duration
        # The loop alternates scans and polls, so a poll sees the output at most one scan after it is there.
        self._deadline = now + cost + expected + self._parameters.scan_cost
        self._give_up = self._deadline + self._parameters.completion_patience

    def _look(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Polls the extraction buffer for the graph in flight."""
        words = self._ring.extraction[: len(self._in_flight)]
        if not bool(np.all(words >> np.uint64(32) == self._launch)):
            if now < self._give_up:
                self._deadline = now + self._parameters.completion_poll
                return
            out.append(Emit(DeviceFaulted("completionTimeout", f"launch {self._launch} left no output")))
            self._fail(now, out)
            return
        was_prefill = self.state is SchedulerState.PREFILLING
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.COMPLETE_STEP)
        self._idle_interval = self._parameters.scan_cost
        members, self._in_flight = self._in_flight, []
        self._publish(members, [int(word) & TOKEN_MASK for word in words], joining=was_prefill, out=out)
        self._turn(now, out)

    def _publish(self, members: list[SlotGeneration], tokens: list[int], *, joining: bool, out: list[Effect]) -> None:
        """Tokens into the arena, then counts and reasons, then states: whoever sees one sees those before it."""
        for member, token in zip(members, tokens, strict=True):
            self._ring.put_answer(member.answer_start + member.generated, token)
            member.push(token)
        reasons = [self._reason(member, token) for member, token in zip(members, tokens, strict=True)]
        for member, reason in zip(members, reasons, strict=True):
            self._ring.publish(member.slot, member.generated, reason, member.incarnation)
        counts = tuple(member.generated for member in members)
        out.append(Emit(TokensPublished(self._launch, tuple(member.request for member in members), counts)))
        staying: list[SlotGeneration] = []
        for member, reason in zip(members, reasons, strict=True):
            if reason is not FinishReason.NONE:
                self._complete(member, out)
            elif not joining:
                staying.append(member)
            elif self._mover.move(member.slot, member.incarnation, SlotMove.MERGE, member.request, out):
                self.batch.join(member)
            else:
                self._pool.release(member.blocks)
        if not joining:
            self.batch.keep(staying)

    def _reason(self, member: SlotGeneration, token: int) -> FinishReason:
        if token == self._eos and not member.sampling.ignore_eos:
            return FinishReason.STOP
        return FinishReason.LENGTH if member.generated >= member.max_tokens else FinishReason.NONE

    def _complete(self, member: SlotGeneration, out: list[Effect]) -> None:
        self._mover.move(member.slot, member.incarnation, SlotMove.COMPLETE, member.request, out)
        self._pool.release(member.blocks)

    def _review(self, members: list[SlotGeneration] | deque[SlotGeneration], out: list[Effect]) -> None:
        """Ends those whose slot bears the cancel flag, and forgets those whose slot a peer has taken away."""
        if not members:
            return
        words = self._ring.states[[member.slot for member in members]]
        for member, word in [*zip(members, map(int, words), strict=True)]:
            if incarnation_of(word) != member.incarnation:
                members.remove(member)
                self._pool.release(member.blocks)
                out.append(Emit(LineLogged(f"slot {member.slot} was taken from request {member.request}", "error")))
            elif cancelled(word):
                members.remove(member)
                self._end(member, FinishReason.CANCELLED, out)

    def _end(self, member: SlotGeneration, reason: FinishReason, out: list[Effect]) -> None:
        """Ends a member without a new token, whatever it is doing."""
        self._ring.publish(member.slot, member.generated, reason, member.incarnation)
        if self._is_in(member, SlotState.DECODE_PAUSED):
            self._mover.move(member.slot, member.incarnation, SlotMove.RESUME, member.request, out)
        self._complete(member, out)

    def _fail(self, now: Nanoseconds, out: list[Effect]) -> None:
        """The device is of no use any more: everybody is told, nobody waits for ever."""
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.FAIL)
        everyone = {id(member): member for member in (*self.batch.members, *self._in_flight, *self._admitted)}
        for member in everyone.values():
            self._end(member, FinishReason.FAULT, out)
        self.batch.keep([])
        self._paused = 0
        self._in_pause = False
        self._in_flight = []
        self._admitted.clear()
        self._tell_batch(out)
        self._deadline = now + self._parameters.scan_cost

    def _tell_batch(self, out: list[Effect]) -> None:
        running, pending = len(self.batch) - self._paused, self._admission.pending
        event = BatchChanged(running, self._paused, pending, self._pool.free, self._pool.total)
        if event != self._told:
            self._told = event
            out.append(Emit(event))


_FOUND_IN = {SlotMove.PAUSE: SlotState.DECODE_PROCESSING, SlotMove.RESUME: SlotState.DECODE_PAUSED}
