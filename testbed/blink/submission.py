"""From a request to a pending slot: tokenise, find a slot, write the burst, submit. Steps 1 to 5.

It posts through the link and answers completions; what happens to a request once it is accepted is others' business.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np
import numpy.typing as npt

from testbed.blink.holdings import Holdings
from testbed.blink.parameters import BlinkParameters
from testbed.blink.prompt_writer import Burst
from testbed.blink.request_tracker import Stage, StageMove, TrackedRequest
from testbed.blink.ring import WORD, RingLayout
from testbed.blink.ring_link import Refresh, RingLink, Swap
from testbed.blink.share import WHOLE, Share
from testbed.blink.slots import SlotMove, moved
from testbed.events.schema import (
    PromptWritten,
    RequestArrived,
    RequestTokenised,
    SlotFound,
    SlotSought,
)
from testbed.machine import Effect, Emit
from testbed.serving.client_side import ClientSide
from testbed.serving.intake import Intake, Refusal
from testbed.serving.requests import Request
from testbed.serving.tokens import Vocabulary
from testbed.units import Nanoseconds


class Submission:
    """Requests on their way to the ring."""

    def __init__(
        self,
        parameters: BlinkParameters,
        link: RingLink,
        holdings: Holdings,
        client: ClientSide[TrackedRequest],
        vocabulary: Vocabulary,
        share: Share = WHOLE,
    ) -> None:
        """`share` keeps the numbers of requests of several front ends on one node apart."""
        self._parameters = parameters
        self._layout: RingLayout = parameters.layout()
        self._intake = Intake(vocabulary, parameters.context())
        self._link = link
        self._holdings = holdings
        self._client = client
        self._vocabulary = vocabulary
        self._numbers = 0
        self._share = share
        self._tokenising: list[tuple[Nanoseconds, int, TrackedRequest]] = []
        self._waiting: deque[TrackedRequest] = deque()
        self._staged: list[TrackedRequest] = []
        self._flush_at: Nanoseconds | None = None
        self._refreshing = False
        self.refreshes = 0
        """READs of the state plane that the slot tracker needed for itself."""
        self.closed: tuple[str, str] | None = None
        """Reason and detail with which everybody is turned away for the time being."""

    def deadline(self) -> Nanoseconds | None:
        """When the next prompt is tokenised or the next burst goes out."""
        ready = self._tokenising[0][0] if self._tokenising else None
        return min((moment for moment in (ready, self._flush_at) if moment is not None), default=None)

    def arrive(self, now: Nanoseconds, request: Request, out: list[Effect]) -> None:
        """Step 1. Tokenisation begins; what cannot be served is refused at once."""
        self._numbers += 1
        number, name = self._share.number(self._numbers), request.name
        out.append(Emit(RequestArrived(number, name, len(request.prompt), request.max_tokens)))
        if self._client.find(name) is not None:
            self._client.turn_away(number, name, "invalid_request", f"a request named {name} is being served", out)
            return
        if self.closed is not None:
            self._client.turn_away(number, name, *self.closed, out)
            return
        prompt = self._intake.read(request)
        if isinstance(prompt, Refusal):
            self._client.turn_away(number, name, *prompt, out)
            return
        tracked = TrackedRequest(request, number, prompt, self._vocabulary)
        self._client.join(tracked)
        ready = now if request.prompt_ids else now + len(prompt) * self._parameters.tokenise_per_token
        heapq.heappush(self._tokenising, (ready, number, tracked))

    def advance(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Does what is due: tokenised prompts seek slots, gathered ones are written."""
        while self._tokenising and self._tokenising[0][0] <= now:
            self._tokenised(heapq.heappop(self._tokenising)[2], out)
        self._assign(now, out)
        while self._staged and (len(self._staged) >= self._parameters.burst_prompts or self._is_due(now)):
            self._flush(out)

    def abandon(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        """The client of a request that has no slot yet has left. One that has is dropped when its WRITEs are done."""
        if tracked.stage in (Stage.TOKENISING, Stage.WAITING):
            self._drop(tracked, out)

    def refreshed(self, now: Nanoseconds, mark: int, words: npt.NDArray[np.uint64] | None, out: list[Effect]) -> None:
        """The tracker's READ is back with the state plane, or failed (None)."""
        self._refreshing = False
        if words is not None:
            self._holdings.slots.refresh(now, mark, words)
            self.advance(now, out)
            return
        while self._waiting:
            tracked = self._waiting.popleft()
            if tracked.stage is Stage.WAITING:
                self._client.refuse(tracked, "unavailable", "the GPU cannot be reached", out)
                self._drop(tracked, out)

    def written(self, burst: Burst, out: list[Effect], *, good: bool) -> None:
        """A WRITE of `burst` has completed. After the last one its prompts are submitted."""
        burst.outstanding -= 1
        burst.failed |= not good
        if burst.outstanding:
            return
        for tracked in burst.members:
            if burst.failed or tracked.abandoned:
                self._client.refuse(tracked, "unavailable", "the prompt could not be written to the GPU", out)
                self._drop(tracked, out)
                continue
            tracked.move(StageMove.SUBMIT)
            size = burst.bytes_of[tracked.number]
            written = PromptWritten(
                tracked.number, tracked.slot, tracked.incarnation, size, burst.operations, len(burst.members),
                self._link.peer,
            )  # fmt: skip
            out.append(Emit(written))
            swap = Swap(tracked, tracked.word, moved(tracked.word, SlotMove.SUBMIT))
            self._link.swap(self._layout.state(tracked.slot), swap, out)

    def swapped(self, now: Nanoseconds, swap: Swap, original: int, out: list[Effect]) -> bool:
        """The submitting compare-and-swap has completed. True if the slot is ours; else another one is sought."""
        tracked = swap.tracked
        if original == swap.expected:
            tracked.word = swap.desired
            tracked.move(StageMove.ACCEPT)
            return True
        tracked.word = original
        self._holdings.drop_slot(tracked)
        tracked.move(StageMove.LOSE_RACE)
        tracked.attempts += 1
        if tracked.abandoned or tracked.attempts >= self._parameters.submit_attempts:
            self._client.refuse(tracked, "ring_full", "other front ends take every slot", out)
            self._drop(tracked, out)
        else:
            self._waiting.appendleft(tracked)
            self.advance(now, out)
        return False

    def _is_due(self, now: Nanoseconds) -> bool:
        return self._flush_at is not None and self._flush_at <= now

    def _tokenised(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        if tracked.stage is not Stage.TOKENISING:
            return
        tracked.move(StageMove.TOKENISE)
        tokens, request = len(tracked.prompt), tracked.request
        out.append(Emit(RequestTokenised(tracked.number, tokens)))
        if refusal := self._intake.misfit(request, tracked.prompt):
            self._client.refuse(tracked, *refusal, out)
        elif tokens > self._layout.input_tokens or self._answer_words(request) > self._layout.token_tokens:
            self._client.refuse(tracked, "context_length_exceeded", "prompt or answer is larger than its arena", out)
        else:
            self._waiting.append(tracked)
            return
        self._drop(tracked, out)

    def _answer_words(self, request: Request) -> int:
        """Words of the token arena that an answer needs."""
        return request.max_tokens + self._parameters.answer_header

    def _assign(self, now: Nanoseconds, out: list[Effect]) -> None:
        """Steps 3 and 4, in order of arrival."""
        slots = self._holdings.slots
        while self._waiting:
            tracked = self._waiting[0]
            if tracked.stage is not Stage.WAITING:
                self._waiting.popleft()
                continue
            if not tracked.sought:
                tracked.sought = True
                out.append(Emit(SlotSought(tracked.number, slots.free)))
            if slots.stale(now, self._parameters.tracker_refresh_interval):
                self._refresh(out)
            if slots.refreshed_at is None or (self._refreshing and not slots.free):
                return
            self._waiting.popleft()
            found = self._holdings.reserve(tracked)
            if isinstance(found, str):
                self._client.refuse(tracked, "ring_full", found, out)
                self._drop(tracked, out)
                continue
            out.append(Emit(SlotFound(tracked.number, found.slot, found.probes, self._link.peer)))
            tracked.move(StageMove.ASSIGN)
            self._staged.append(tracked)
            if self._flush_at is None:
                self._flush_at = now + self._parameters.burst_window

    def _refresh(self, out: list[Effect]) -> None:
        if not self._refreshing:
            self._refreshing = True
            self.refreshes += 1
            mark = self._holdings.slots.begin_refresh()
            self._link.read(0, self._layout.slots * WORD, Refresh(mark), out)

    def _flush(self, out: list[Effect]) -> None:
        size = self._parameters.burst_prompts
        members, self._staged = self._staged[:size], self._staged[size:]
        if not self._staged:
            self._flush_at = None
        for tracked in [member for member in members if member.abandoned]:
            members.remove(tracked)
            self._drop(tracked, out)
        if members:
            burst = Burst(members, self._layout)
            for staged in burst.writes:
                self._link.write(staged.offset, staged.data, burst, out)

    def _drop(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        tracked.move(StageMove.END)
        self._client.leave(tracked)
        self._holdings.drop(tracked)
        if event := tracked.epitaph():
            out.append(Emit(event))
