"""The request tracker: where each request stands in the front end, from the client's words to the emptied slot.

Blink's front end keeps slot, token counts and completion of every request (summary, "front end"). The stages and
their table are ours. This file knows no wire; it holds what the front end must not forget.
"""

from __future__ import annotations

from enum import Enum

from testbed.blink.ring import ECHO_MASK, IGNORE_EOS, Descriptor, FinishReason, Progress
from testbed.events.schema import RequestAbandoned, RequestServed
from testbed.serving.client_side import Listener
from testbed.serving.requests import Request
from testbed.serving.tokens import Vocabulary
from testbed.serving.transitions import Transitions

NOWHERE = -1
"""A slot or an extent that a request does not have."""


class Stage(Enum):
    """What the front end is doing with a request."""

    TOKENISING = "tokenising"
    WAITING = "waiting"
    """For a slot."""
    WRITING = "writing"
    """Prompt and descriptor are staged or on the wire; the slot is still empty."""
    SUBMITTING = "submitting"
    """The compare-and-swap to `prefill_pending` is on the wire."""
    SERVING = "serving"
    CLEARING = "clearing"
    """Nobody waits for tokens any more; the slot is being emptied."""
    ENDED = "ended"


class StageMove(Enum):
    """What moves it on."""

    TOKENISE = "tokenise"
    ASSIGN = "assign"
    SUBMIT = "submit"
    ACCEPT = "accept"
    LOSE_RACE = "lose_race"
    CLEAR = "clear"
    END = "end"


_S, _M = Stage, StageMove
STAGE_TABLE: Transitions[Stage, StageMove] = Transitions(
    "request",
    _S.TOKENISING,
    {
        (_S.TOKENISING, _M.TOKENISE): _S.WAITING,
        (_S.WAITING, _M.ASSIGN): _S.WRITING,
        (_S.WRITING, _M.SUBMIT): _S.SUBMITTING,
        (_S.SUBMITTING, _M.ACCEPT): _S.SERVING,
        (_S.SUBMITTING, _M.LOSE_RACE): _S.WAITING,
        (_S.SUBMITTING, _M.CLEAR): _S.CLEARING,
        (_S.SERVING, _M.CLEAR): _S.CLEARING,
        (_S.TOKENISING, _M.END): _S.ENDED,
        (_S.WAITING, _M.END): _S.ENDED,
        (_S.WRITING, _M.END): _S.ENDED,
        (_S.CLEARING, _M.END): _S.ENDED,
    },
)


class TrackedRequest(Listener):
    """One request. Only the front end changes it, stages by `move` alone."""

    def __init__(self, request: Request, number: int, prompt: list[int], vocabulary: Vocabulary) -> None:
        super().__init__(request, number, prompt, vocabulary)
        self.stage = STAGE_TABLE.first
        self.abandoned = False
        """The client listens no more, by its own will: what is still to be done for it is dropped."""
        self.satisfied = False
        """It left with its whole answer, which a stop string ended: the request is served, not lost."""
        self.input_start = NOWHERE
        self.answer_start = NOWHERE
        self.slot = NOWHERE
        self.incarnation = 0
        """The slot's incarnation in this use, from `assign` on."""
        self.word = 0
        """The slot's word as last known."""
        self.since = 0
        """Metadata READs with marks up to this one were posted before `word` was known: they say nothing new."""
        self.attempts = 0
        self.sought = False
        self.swapping = False
        """A compare-and-swap on the slot's word is in flight."""
        self.generated = 0
        """Tokens that the GPU has published, as last read."""
        self.reason = FinishReason.NONE
        self.seen = 0
        """Tokens read and passed on."""
        self.reading = False
        """A token read is in flight."""

    @property
    def urgent(self) -> bool:
        """No token has been seen yet: the first is fetched before all others."""
        return self.seen == 0

    @property
    def unread(self) -> int:
        """Published tokens that have not been fetched and are not being fetched."""
        return 0 if self.reading else self.generated - self.seen

    @property
    def finished(self) -> bool:
        """Whether nothing more will come: the reason is there and every token before it has been seen."""
        return self.reason is not FinishReason.NONE and self.seen >= self.generated

    def move(self, move: StageMove) -> None:
        """Moves to the next stage. Raises `IllegalMove` and changes nothing if the table has none."""
        self.stage = STAGE_TABLE.after(self.stage, move)

    def note(self, progress: Progress) -> bool:
        """Takes a progress word that was read; one of another use of the slot, or an older one, says nothing.

        True if it says something new.
        """
        if self.reason is not FinishReason.NONE or progress.echo != self.incarnation & ECHO_MASK:
            return False
        if progress.generated < self.generated:
            return False
        before = self.generated, self.reason
        self.generated = min(progress.generated, self.request.max_tokens)
        self.reason = progress.reason
        return before != (self.generated, self.reason)

    def epitaph(self) -> RequestServed | RequestAbandoned | None:
        """What the log says at its end: served or abandoned; None where a refusal has said it already."""
        if self.satisfied:
            return RequestServed(self.number, self.seen, FinishReason.STOP.name.lower())
        if self.abandoned:
            return RequestAbandoned(self.number)
        if self.finished and self.reason in (FinishReason.STOP, FinishReason.LENGTH):
            return RequestServed(self.number, self.seen, self.reason.name.lower())
        return None

    def descriptor(self, checksum: int) -> Descriptor:
        """The descriptor of this request for its slot. `checksum` is the prompt's CRC-32."""
        sampling = self.request.sampling
        return Descriptor(
            request=self.number,
            prompt_start=self.input_start,
            prompt_tokens=len(self.prompt),
            answer_start=self.answer_start,
            max_tokens=self.request.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            flags=IGNORE_EOS if sampling.ignore_eos else 0,
            prompt_checksum=checksum,
            incarnation=self.incarnation,
        )
