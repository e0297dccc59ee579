"""The GPU-resident scheduler: a loop that scans, claims, launches, watches the output and publishes. No host.

Blink's persistent kernel (summary, "resident scheduling kernel"; blink.md 2.1, 2.2) as a machine: one `_turn` between
two graphs, one `_look` when a graph should be done. The ring is handed to it as local memory; its loads, stores and
compare-and-swaps are immediate. Everything it must remember outlives the window, as in Blink, where it lies in
persistent GPU memory. Its parts: `admission` finds and claims prompts, `launcher` launches graphs, `publishing`
writes back what they leave.

Where the real kernel polls without a break, this one sleeps until the moment at which a poll would first succeed (by
the same cost model that the device runs on, plus one scan) and then looks again every `completion_poll`. It knows
nothing of the DPU, of text or of a device's insides; a graph is opaque.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from testbed.blink.admission import Admission, SlotGeneration, SlotMover
from testbed.blink.control_line import ControlLine, Heart
from testbed.blink.launch_window import LaunchWindow
from testbed.blink.launcher import GraphLauncher
from testbed.blink.launches import TOKEN_MASK, LaunchRefused, SchedulerReturned, SchedulerStarted, TailLaunch
from testbed.blink.parameters import BlinkParameters
from testbed.blink.prefix_reuse import PrefixReuse
from testbed.blink.publishing import Publisher
from testbed.blink.restoring import Restoring
from testbed.blink.ring import FinishReason, RingView
from testbed.blink.scheduler_states import SCHEDULER_TABLE, SchedulerMove, SchedulerState
from testbed.blink.slots import SlotMove
from testbed.blink.speculation import NO_TOKEN
from testbed.blink.steps import Step
from testbed.events.blink_events import SchedulerRestarted
from testbed.events.schema import BatchChanged, DeviceFaulted, WindowRelaunched
from testbed.machine import NOTHING, Compute, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.network.memory_region import LocalMemory
from testbed.serving.batch import Batch
from testbed.serving.cost_model import CostModel
from testbed.serving.graph_cache import CHUNK, DECODE, MIXED, PREFILL
from testbed.serving.kv_blocks import BlockPool
from testbed.serving.policy import AdmissionPolicy, FirstComeFirstServed
from testbed.serving.prefix_blocks import SharedBlockPool
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
        self._ring = RingView(memory, parameters.layout())
        self._pool, self._reuse = _kv_pool(parameters, kv_blocks, self._ring)
        context = parameters.context()
        self._admission = Admission(self._ring, self._pool, policy or FirstComeFirstServed(), context, self._reuse)
        self._publisher = Publisher(self._ring, SlotMover(self._ring), self._pool, eos)
        self._control = ControlLine(memory, self._ring.layout)
        self._heart = Heart(self._control, parameters.heartbeat_interval)
        self._launcher = GraphLauncher(parameters, cost_model, self._control)
        self.state = SCHEDULER_TABLE.first
        self.batch: Batch[SlotGeneration] = Batch(parameters.max_batch)
        self._paused = 0
        self._in_pause = False
        self._admitted: deque[SlotGeneration] = deque()
        self._lane_words = parameters.lane_words
        self._riding = parameters.chunk_placement == "riding"
        self._budget = parameters.prefill_chunk_tokens or parameters.context() * parameters.max_batch
        self._allowance = self._budget
        """Tokens of prompts that may still be computed before the next decode step."""
        self._in_flight: Step | None = None
        self._give_up: Nanoseconds = 0
        self._returned_at: Nanoseconds = 0
        self._idle_interval = parameters.scan_cost
        self._deadline: Nanoseconds | None = None
        self._told: BatchChanged | None = None

    @property
    def kv_blocks_free(self) -> int:
        """KV blocks that no generation holds."""
        return self._pool.free

    @property
    def window(self) -> LaunchWindow:
        """The launch window of the execution under way."""
        return self._launcher.window

    def deadline(self) -> Nanoseconds | None:
        """The next scan, look or heartbeat."""
        return self._heart.sooner(self._deadline)

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
        """Ends a scan, or looks for the output of the graph in flight; its heart beats."""
        self._heart.beat(now)
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
        if self._in_flight is not None:
            # It had enqueued a graph before itself and returned: by CUDA's rule the graph is complete now.
            self.state = SCHEDULER_TABLE.after(self.state, _REJOIN[self._in_flight.kind])
        else:
            self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.START)
            if not message.execution:
                self._take_over(now, out)
            else:
                launches = self.window.renew()
                out.append(Emit(WindowRelaunched(self.window.index, launches, now - self._returned_at)))
        # The first scan of an execution ends one scan later: nothing ran before that could have hidden it.
        self._deadline = now + self._parameters.scan_cost

    def _take_over(self, now: Nanoseconds, out: list[Effect]) -> None:
        """The first execution of a scheduler's life begins with what an earlier life has left in the ring."""
        self._heart.start(now)
        keep_kv = self._parameters.restored_kv == "kept"
        restoring = Restoring(
            self._ring, SlotMover(self._ring), self._pool, context_tokens=self._parameters.context(), keep_kv=keep_kv
        )
        found = restoring.restore(out)
        for member in found.running:
            self.batch.join(member)
        self._admission.restored.extend(found.waiting)
        if life := self._control.read().life:
            running, waiting = len(found.running), len(found.waiting)
            out.append(Emit(SchedulerRestarted(life, running, waiting, found.ended, found.interrupted)))

    def _turn(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Between two graphs: a scan has just ended. Admit, go on, relaunch, or scan again."""
        if self._may_admit():
            self._in_pause = False
            self.batch.keep(self._publisher.review(self.batch.members, out))
            pending = self._admission.scan()
            admitted = self._admission.admit(now, pending, len(self.batch), self._places(), out)
            if admitted or (self._admitted and self._launcher.left >= PREFILL_AND_DECODE):
                self._begin_prefills(admitted, out)
            elif self._must_relaunch(len(pending)):
                self._relaunch(now, out)
                return
        self._admitted = deque(self._publisher.review(self._admitted, out))
        if self._goes_on():
            self._prefill(now, out)
        elif self.batch.members:
            self._resume(out)
            self._tell_batch(out)
            self._fire(now, Step(tuple(self.batch.members)), out)
        else:
            self._in_pause = False
            self._tell_batch(out)
            self._deadline = now + self._idle_interval
            self._idle_interval = max(
                self._parameters.scan_cost, min(2 * self._idle_interval, self._parameters.idle_scan_limit)
            )

    def _may_admit(self) -> bool:
        """Not while a pause's prefills go on, nor before the decode step after them: a running batch never starves."""
        return not (self._in_pause and (self.batch.members or self._goes_on()))

    def _goes_on(self) -> bool:
        """Whether a prompt, or part of one, is to be computed before the next decode step."""
        return bool(self._admitted) and self._allowance > 0 and self._launcher.left >= PREFILL_AND_DECODE

    def _places(self) -> int:
        """Prompts that may be claimed: a place in the batch, and room in the window (conditions of a pause)."""
        under_way = len(self._admitted)
        most = 1 if self._riding else self._parameters.prefills_per_pause
        return min(self.batch.places, most, self._launcher.left - 1) - under_way

    def _must_relaunch(self, pending: int) -> bool:
        if not self._launcher.left:
            return True
        # One launch is left and nobody runs who could use it: a prompt must not wait for a decode that never comes.
        waiting = pending > 0 or bool(self._admitted) or bool(self._admission.restored)
        return waiting and not self.batch.members and self._launcher.left < PREFILL_AND_DECODE

    def _relaunch(self, now: Nanoseconds, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.RETURN)
        self._deadline = None
        self._returned_at = now
        out.extend((Compute(TailLaunch()), Compute(SchedulerReturned())))

    def _begin_prefills(self, admitted: list[SlotGeneration], out: list[Effect]) -> None:
        """Prompts wait for their prefill; unless they ride with its steps, the batch pauses for them."""
        self._allowance = self._budget
        self._admitted.extend(admitted)
        if not self._riding:
            self._in_pause = True
            self._paused = len(self.batch)
            self._publisher.move_batch(self.batch.members, SlotMove.PAUSE, out)
        self._tell_batch(out)

    def _prefill(self, now: Nanoseconds, out: list[Effect]) -> None:
        """The next prompt, or as much of it as the budget allows."""
        member = self._admitted.popleft()
        fresh = min(member.context - member.computed, self._allowance)
        self._allowance -= fresh
        decoding = tuple(self.batch.members) if self._riding else ()
        self._fire(now, Step(decoding, member, fresh), out)

    def _resume(self, out: list[Effect]) -> None:
        self._in_pause = False
        if self._paused:
            self._paused = 0
            self._publisher.move_batch(self.batch.members, SlotMove.RESUME, out)

    def _fire(self, now: Nanoseconds, step: Step, out: list[Effect]) -> None:
        self.state = SCHEDULER_TABLE.after(self.state, _LAUNCH[step.kind])
        first = self._launcher.fire(now, step, out)
        self._in_flight = step
        # The loop alternates scans and polls, so a poll sees the output at most one scan after it is there.
        self._deadline = first + self._parameters.scan_cost
        self._give_up = self._deadline + self._parameters.completion_patience
        if self._launcher.mode == "tail":
            # The graph runs when this execution has ended; the next one, behind it, finds its output.
            self._relaunch(now, out)

    def _look(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Polls the extraction buffer for the graph in flight."""
        step = self._in_flight
        assert step is not None
        words = self._ring.extraction[: len(step.members) * self._lane_words]
        if not bool(np.all(words >> np.uint64(32) == self._launcher.launch)):
            if now < self._give_up:
                self._deadline = now + self._parameters.completion_poll
                return
            out.append(Emit(DeviceFaulted("completionTimeout", f"launch {self._launcher.launch} left no output")))
            self._fail(now, out)
            return
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.COMPLETE_STEP)
        self._idle_interval = self._parameters.scan_cost
        self._in_flight = None
        drawn = (words & np.uint64(TOKEN_MASK)).reshape(-1, self._lane_words).tolist()
        self._publish(step, [[token for token in lane if token != NO_TOKEN] for lane in drawn], out)
        self._turn(now, out)

    def _publish(self, step: Step, tokens: list[list[int]], out: list[Effect]) -> None:
        """Everybody's tokens; a prompt that is not whole yet waits for its next chunk."""
        completes, member = step.completes_prompt, step.prefilling
        if completes and member is not None and self._reuse is not None:
            member.blocks = self._reuse.remember(member.keys, member.blocks)
        with_token = step.members if member is None or completes else step.decoding
        staying = self._publisher.publish(self._launcher.launch, with_token, tokens[: len(with_token)], out)
        if step.decoding:
            self.batch.keep([each for each in staying if each is not member])
        if member is None:
            return
        member.computed += step.fresh
        if not completes:
            self._admitted.appendleft(member)
        elif member in staying and self._publisher.merge(member, out):
            self.batch.join(member)

    def _fail(self, now: Nanoseconds, out: list[Effect]) -> None:
        """The device is of no use any more: everybody is told, nobody waits for ever."""
        self.state = SCHEDULER_TABLE.after(self.state, SchedulerMove.FAIL)
        in_flight = self._in_flight.members if self._in_flight is not None else ()
        held = (*self.batch.members, *in_flight, *self._admitted, *self._admission.restored)
        everyone = {id(member): member for member in held}
        for member in everyone.values():
            self._publisher.end(member, FinishReason.FAULT, out)
        self.batch.keep([])
        self._paused = 0
        self._in_pause = False
        self._in_flight = None
        self._admitted.clear()
        self._admission.restored.clear()
        self._tell_batch(out)
        self._deadline = now + self._parameters.scan_cost

    def _tell_batch(self, out: list[Effect]) -> None:
        running, pending = len(self.batch) - self._paused, self._admission.pending
        event = BatchChanged(running, self._paused, pending, self._pool.free, self._pool.total)
        if event != self._told:
            self._told = event
            out.append(Emit(event))


def _kv_pool(parameters: BlinkParameters, blocks: int, ring: RingView) -> tuple[BlockPool, PrefixReuse | None]:
    """The device's KV blocks, and what finds prefixes in them again, if anything does."""
    if not parameters.prefix_cache:
        return BlockPool(blocks, parameters.kv_block_tokens), None
    pool = SharedBlockPool(blocks, parameters.kv_block_tokens)
    return pool, PrefixReuse(ring, pool)


PREFILL_AND_DECODE = 2
"""Launches that a prompt needs: its prefill, and the decode step after it."""

_LAUNCH = {
    PREFILL: SchedulerMove.LAUNCH_PREFILL, CHUNK: SchedulerMove.LAUNCH_PREFILL,
    DECODE: SchedulerMove.LAUNCH_DECODE, MIXED: SchedulerMove.LAUNCH_DECODE,
}  # fmt: skip
_REJOIN = {
    PREFILL: SchedulerMove.REJOIN_PREFILL, CHUNK: SchedulerMove.REJOIN_PREFILL,
    DECODE: SchedulerMove.REJOIN_DECODE, MIXED: SchedulerMove.REJOIN_DECODE,
}  # fmt: skip
