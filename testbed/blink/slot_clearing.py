"""Emptying a slot that nobody reads any more: release, withdraw or cancel, whatever its word calls for.

One rule serves the normal end of a request, a client that went away, a race with the scheduler and an operation that
failed on the wire: look at the newest word there is, do what it allows, look again. Words come back with every
compare-and-swap and with every metadata READ, so the rule always arrives.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from testbed.blink.holdings import Holdings
from testbed.blink.request_tracker import StageMove, TrackedRequest
from testbed.blink.ring import FinishReason, RingLayout
from testbed.blink.ring_link import RingLink, Swap
from testbed.blink.slots import (
    CANCELLABLE,
    INCARNATION_MASK,
    SlotMove,
    SlotState,
    UnreadableWord,
    cancelled,
    incarnation_of,
    moved,
    state_of,
    with_cancel,
)
from testbed.machine import Effect, Emit
from testbed.serving.client_side import ClientSide


class Verdict(Enum):
    """What a word says when there is nothing to swap."""

    EMPTY = "empty"
    """The slot is empty, or another use of it has begun: this one is over."""
    WAIT = "wait"
    """The scheduler has to move first."""


def next_step(word: int, incarnation: int, *, finishing: bool) -> int | Verdict:
    """The word to swap in for `word`, or a verdict. `finishing` says that the scheduler has published the end."""
    try:
        state = state_of(word)
    except UnreadableWord:
        return Verdict.WAIT
    if incarnation_of(word) != incarnation & INCARNATION_MASK or state is SlotState.EMPTY:
        return Verdict.EMPTY
    if state is SlotState.PREFILL_PENDING:
        return moved(word, SlotMove.WITHDRAW)
    if state is SlotState.DECODE_COMPLETED:
        return moved(word, SlotMove.RELEASE)
    if state in CANCELLABLE and not cancelled(word) and not finishing:
        return with_cancel(word)
    return Verdict.WAIT


class SlotClearing:
    """The requests whose slots are being emptied."""

    def __init__(
        self, link: RingLink, layout: RingLayout, holdings: Holdings, client: ClientSide[TrackedRequest]
    ) -> None:
        self._link = link
        self._layout = layout
        self._holdings = holdings
        self._client = client
        self._requests: dict[int, TrackedRequest] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def begin(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        """Starts emptying the slot of a request that is being served; its `word` is the best guess there is."""
        self.await_word(tracked)
        self._step(tracked, out)

    def await_word(self, tracked: TrackedRequest) -> None:
        """Starts emptying a slot of which nothing is known: the next metadata READ tells."""
        tracked.move(StageMove.CLEAR)
        tracked.since = self._holdings.slots.clock
        self._client.leave(tracked)
        self._requests[tracked.number] = tracked

    def observe(self, mark: int, words: npt.NDArray[np.uint64], out: list[Effect]) -> None:
        """Takes the words of all slots, as the metadata READ of `mark` brought them."""
        for tracked in list(self._requests.values()):
            if not tracked.swapping and mark > tracked.since:
                tracked.word = int(words[tracked.slot])
                self._step(tracked, out)

    def swapped(self, swap: Swap, original: int, out: list[Effect], *, good: bool) -> None:
        """A compare-and-swap of ours has ended. A failed one leaves us to the next metadata READ."""
        tracked = swap.tracked
        tracked.swapping = False
        tracked.since = self._holdings.slots.clock
        if good:
            tracked.word = swap.desired if original == swap.expected else original
            self._step(tracked, out)

    def _step(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        finishing = tracked.reason is not FinishReason.NONE
        step = next_step(tracked.word, tracked.incarnation, finishing=finishing)
        if step is Verdict.EMPTY:
            self._end(tracked, out)
        elif not isinstance(step, Verdict):
            tracked.swapping = True
            self._link.swap(self._layout.state(tracked.slot), Swap(tracked, tracked.word, step), out)

    def _end(self, tracked: TrackedRequest, out: list[Effect]) -> None:
        tracked.move(StageMove.END)
        del self._requests[tracked.number]
        self._holdings.drop(tracked)
        if event := tracked.epitaph():
            out.append(Emit(event))
