"""Blink's front end on the DPU: from a client's request to a prompt in GPU memory, and from tokens there to a stream.

Steps 1 to 5 and 11 to 13 of Blink's architecture figure. It reaches the GPU only by RDMA verbs on the ring's region
and knows neither the scheduler nor the host; nothing in it assumes that it runs on a DPU, so it can be a gateway.
Its parts: `submission` brings prompts to the ring, `token_reader` plans the polling, `client_side` speaks to clients,
`slot_clearing` empties slots, `holdings` knows what is lent out, `watchdog` misses a scheduler that is dead. This
file routes between them.

A prompt becomes visible in two strokes: its WRITEs are completed first, then the slot is moved to `prefill_pending` by
CMP_SWAP. That costs one round trip more than relying on the order of the connection alone, and it lets bulk prompts
and control words travel in different lanes. Whatever the GPU side finds in a slot is still checked there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.blink.awaited import Awaited
from testbed.blink.control_line import asked_word, unpack_control
from testbed.blink.holdings import Holdings
from testbed.blink.parameters import BlinkParameters
from testbed.blink.prompt_writer import Burst
from testbed.blink.request_tracker import Stage, TrackedRequest
from testbed.blink.ring import CONTROL, TOKEN, FinishReason, tokens_from, unpack_progress
from testbed.blink.ring_link import Look, Metadata, Refresh, Restart, RingLink, Swap, Task
from testbed.blink.share import WHOLE, Share
from testbed.blink.slot_clearing import SlotClearing
from testbed.blink.slots import SlotState, incarnation_of, pack
from testbed.blink.submission import Submission
from testbed.blink.task_pool import TaskPool
from testbed.blink.token_reader import Fetch, TokenRead, TokenReader
from testbed.blink.watchdog import Watchdog
from testbed.events.schema import TokensRead
from testbed.machine import (
    NOTHING,
    Completion,
    Effect,
    Effects,
    Emit,
    Message,
    RemoteAddress,
    UnexpectedMessage,
)
from testbed.serving.client_side import ClientSide
from testbed.serving.requests import Abandon, Finish, Submit
from testbed.serving.tokens import Vocabulary
from testbed.units import Nanoseconds

_ENDINGS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}
_REFUSALS = {
    FinishReason.CANCELLED: ("cancelled", "the request was cancelled"),
    FinishReason.DAMAGED: ("internal", "the prompt arrived damaged in GPU memory"),
    FinishReason.KV_TOO_SMALL: ("context_length_exceeded", "the request needs more KV memory than the GPU has"),
    FinishReason.FAULT: ("unavailable", "the GPU failed"),
    FinishReason.INTERRUPTED: ("internal", "the GPU's scheduler was restarted and cannot go on with this request"),
}
_NO_SCHEDULER = ("unavailable", "the GPU's scheduler does not come back")
_UNREACHABLE = ("unavailable", "the GPU cannot be reached")


class FrontEnd:
    """The machine "front_end" of a DPU or gateway node."""

    name = "front_end"

    def __init__(
        self,
        parameters: BlinkParameters,
        *,
        vocabulary: Vocabulary,
        ring: RemoteAddress,
        peer: str = "gpu0",
        to: str = "api",
        name: str = name,
        share: Share = WHOLE,
    ) -> None:
        """`ring` is the region "ring" of the node `peer`; answers are delivered to the port `to` of this node.

        Several front ends of one node have names and shares of numbers of their own.
        """
        self.name = name
        self._layout = parameters.layout()
        self.holdings = Holdings(parameters)
        self._client = ClientSide[TrackedRequest](to)
        self._link = RingLink(peer, ring, parameters.service_level, TaskPool[Task](parameters.task_pool, share))
        self._submission = Submission(parameters, self._link, self.holdings, self._client, vocabulary, share)
        self._clearing = SlotClearing(self._link, self._layout, self.holdings, self._client)
        self._reader = TokenReader(parameters, self._layout)
        self._watchdog = Watchdog(parameters, peer)
        self._serving = Awaited()

    @property
    def serving(self) -> int:
        """Requests whose tokens are awaited."""
        return len(self._serving)

    def deadline(self) -> Nanoseconds | None:
        """When a prompt is ready, a burst goes out, the next poll is due, or a look for a sign of life."""
        moments = (self._submission.deadline(), self._reader.due, self._watchdog.due)
        return min((moment for moment in moments if moment is not None), default=None)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a request, a client's departure or a completion."""
        out: list[Effect] = []
        match message:
            case Submit(request=request):
                self._submission.arrive(now, request, out)
            case Abandon(name=name):
                self._depart(name, out, satisfied=False)
            case Finish(name=name):
                self._depart(name, out, satisfied=True)
            case Completion():
                self._completed(now, message, out)
            case _:
                raise UnexpectedMessage(self.name, message)
        self._settle(now, out)
        return out

    def wake(self, now: Nanoseconds) -> Effects:
        """Does what is due: submissions, then the poll, then the watchdog's look."""
        due = self.deadline()
        if due is None or now < due:
            return NOTHING
        out: list[Effect] = []
        self._submission.advance(now, out)
        if self._reader.due is not None and self._reader.due <= now:
            mark = self.holdings.slots.begin_refresh()
            self._link.read(0, self._layout.metadata_size, Metadata(mark), out)
            self._reader.posted(now)
        if self._watchdog.due is not None and self._watchdog.due <= now:
            self._link.read(self._layout.control, CONTROL, Look(), out)
            self._watchdog.reading = True
        return out

    def _depart(self, name: str, out: list[Effect], *, satisfied: bool) -> None:
        """A client listens no more; `satisfied` says that it has its whole answer."""
        tracked = self._client.find(name)
        if tracked is None:
            return  # its last message and the news of its end have crossed
        tracked.abandoned = True
        tracked.satisfied = satisfied
        self._client.leave(tracked)
        if tracked.stage is Stage.SERVING:
            self._clear(tracked, out)
        else:
            self._submission.abandon(tracked, out)

    def _completed(self, now: Nanoseconds, completion: Completion, out: list[Effect]) -> None:
        task, good = self._link.complete(completion, out)
        match task:
            case Refresh(mark=mark):
                words = np.frombuffer(completion.data, "<u8") if good else None
                self._submission.refreshed(now, mark, words, out)
            case Burst():
                self._submission.written(task, out, good=good)
            case Swap(tracked=tracked) if tracked.stage is Stage.SUBMITTING:
                self._submitted(now, task, completion.original, out, good=good)
            case Swap():
                self._clearing.swapped(task, completion.original, out, good=good)
            case Metadata(mark=mark) if good:
                self._polled(now, mark, np.frombuffer(completion.data, "<u8"), out)
            case Metadata():
                self._unreachable(now, out)
            case TokenRead():
                self._fetched(task, completion.data, out, good=good)
            case Look() if good:
                self._looked(now, completion.data, out)
            case Look():
                self._watchdog.failed(now)
            case Restart():
                pass  # whoever was first has asked: the next look shows a new life, or none

    def _settle(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Polls go on while anything is awaited."""
        if not self._serving and not self._clearing:
            self._reader.stop()
        elif self._reader.due is None and not self._reader.reading:
            self._reader.start(now)
        self._watchdog.awaiting(now, something=bool(self._serving or self._clearing))
        if event := self._reader.measured(now, self._submission.refreshes):
            out.append(Emit(event))

    def _submitted(self, now: Nanoseconds, swap: Swap, original: int, out: list[Effect], *, good: bool) -> None:
        tracked = swap.tracked
        if not good:
            # Nobody knows whether the swap happened: the slot is ours to empty until its word says otherwise.
            self._client.refuse(tracked, *_UNREACHABLE, out)
            self._clearing.await_word(tracked)
            self._reader.slow_down(now)
        elif self._submission.swapped(now, swap, original, out):
            tracked.since = self.holdings.slots.clock
            self._serving.add(tracked)
            self._reader.start(now)
            if tracked.abandoned:
                self._clear(tracked, out)

    def _polled(self, now: Nanoseconds, mark: int, words: npt.NDArray[np.uint64], out: list[Effect]) -> None:
        """A metadata READ is back: see who has new tokens, fetch them, see which slots have moved."""
        self._reader.reading = False
        slots = self._layout.slots
        states, progress = words[:slots], words[slots:]
        self.holdings.slots.refresh(now, mark, states)
        self._clearing.observe(mark, states, out)
        for news in self._serving.news(mark, states, progress):
            self._look_at(now, *news, out)
        for read in self._reader.plan(self._serving.backlog.values(), self._serving.unborn):
            for fetch in read.parts:
                fetch.tracked.reading = True
                self._serving.note(fetch.tracked)
            self._link.read(read.offset, read.length, read, out)

    def _look_at(self, now: Nanoseconds, tracked: TrackedRequest, word: int, progress: int, out: list[Effect]) -> None:
        if incarnation_of(word) != tracked.incarnation:
            self._client.refuse(tracked, "internal", "the slot was taken away", out)
            tracked.word = word
            self._clear(tracked, out)
            return
        tracked.word = word
        if tracked.note(unpack_progress(progress)):
            self._watchdog.tokens_seen(now)
        self._serving.note(tracked)
        if tracked.finished and not tracked.reading:
            self._finish(tracked, out)

    def _fetched(self, read: TokenRead, data: bytes, out: list[Effect], *, good: bool) -> None:
        for fetch in read.parts:
            tracked = fetch.tracked
            tracked.reading = False
            if tracked.stage is not Stage.SERVING:
                continue
            if not good:
                self._client.refuse(tracked, *_UNREACHABLE, out)
                self._clear(tracked, out)
                continue
            start = fetch.offset - read.offset
            words = tokens_from(data[start : start + fetch.words * TOKEN])
            if fetch.header:
                tracked.cached = min(words[0], len(tracked.prompt))
            self._take(fetch, words[fetch.header :], out)

    def _take(self, fetch: Fetch, tokens: list[int], out: list[Effect]) -> None:
        """Steps 11 to 13 for one request."""
        tracked = fetch.tracked
        out.append(Emit(TokensRead(tracked.number, fetch.first, fetch.amount, fetch.urgent)))
        self._serving.take(tracked, fetch.amount)
        ending = _ENDINGS.get(tracked.reason) if tracked.finished else None
        self._client.stream(tracked, fetch.first, tokens, ending, out)
        if tracked.finished:
            self._finish(tracked, out)

    def _finish(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        """All tokens are read and the reason is known."""
        if ending := _ENDINGS.get(tracked.reason):
            self._client.stream(tracked, tracked.seen, (), ending, out)
        else:
            self._client.refuse(tracked, *_REFUSALS[tracked.reason], out)
        # The scheduler completes a slot right after publishing its end: a good first guess of the word.
        tracked.word = pack(SlotState.DECODE_COMPLETED, tracked.incarnation)
        self._clear(tracked, out)

    def _clear(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        self._serving.remove(tracked)
        self._clearing.begin(tracked, out)

    def _looked(self, now: Nanoseconds, line: bytes, out: list[Effect]) -> None:
        """The control line is back."""
        words = self._watchdog.observe(now, unpack_control(line), out)
        if words is not None:
            self._link.swap(asked_word(self._layout), Restart(*words), out)
        self._submission.closed = _NO_SCHEDULER if self._watchdog.given_up else None
        if self._watchdog.given_up:
            self._give_up(*_NO_SCHEDULER, out)

    def _give_up(self, reason: str, detail: str, out: list[Effect]) -> None:
        """Nobody is served any more; slots are emptied when their words say so again."""
        for tracked in self._serving:
            self._client.refuse(tracked, reason, detail, out)
            self._serving.remove(tracked)
            self._clearing.await_word(tracked)

    def _unreachable(self, now: Nanoseconds, out: list[Effect]) -> None:
        """A poll failed: the connection is lost. Clients are told; slots are emptied when the GPU answers again."""
        self._reader.reading = False
        self._give_up(*_UNREACHABLE, out)
        self._reader.slow_down(now)
        self._watchdog.postpone(now)
