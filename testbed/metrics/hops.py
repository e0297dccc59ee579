"""The two hops between DPU and GPU that a client's latencies contain, and the parts that a twin is made from.

*Submit to claim*: the front end's prompt is in GPU memory and the swap that submits the slot is posted
(`prompt.written`) until the scheduler has claimed the slot (`slot.claimed`). *Publish to client*: a token is in the
ring (`tokens.published`) until the client has it (`token.received`), or, where no client logs, until it is streamed.

The others are single parts: a request's way to the front end and a chunk's way to the client, which the simulated twin
of an emulation is given, and a verb's round trip (`verbs.measured`), which is shown beside the twin's. Everything but
the last is in true nanoseconds. It knows events of the thirteen steps (Blink summary, Figure 2), not who wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.events.client_events import RequestSent, TokenReceived
from testbed.events.fidelity_events import VerbsMeasured
from testbed.events.log import Record
from testbed.events.schema import PromptWritten, RequestArrived, SlotClaimed, TokensPublished, TokensStreamed
from testbed.machine import Event
from testbed.units import Nanoseconds


class VerbTime(msgspec.Struct, frozen=True):
    """Round trips of one kind of verb over some time: posting to completion, as software sees it."""

    kind: str
    bytes: int
    """Of the largest message; the others have at least half as many."""
    n: int
    p50: Nanoseconds
    """In *wall* nanoseconds."""


class HopState(msgspec.Struct):
    """What is under way, and every value so far."""

    numbers: dict[str, int] = {}
    """The server's number of each client's name, the newest."""
    sent: dict[str, Nanoseconds] = {}
    """Requests on their way to the front end."""
    written: dict[str, Nanoseconds] = {}
    """Moment of each submission that was not claimed yet, by request, slot and incarnation."""
    claimed: dict[str, Nanoseconds] = {}
    """The same for claims whose submission was not logged yet."""
    published: dict[int, list[Nanoseconds]] = {}
    """When each token of a request was in the ring."""
    streamed: dict[int, list[Nanoseconds]] = {}
    """When each token of a request was handed to the front network."""
    submit_to_claim: list[Nanoseconds] = []
    publish_to_client: list[Nanoseconds] = []
    publish_to_stream: list[Nanoseconds] = []
    to_front_end: list[Nanoseconds] = []
    to_client: list[Nanoseconds] = []
    verbs: list[VerbTime] = []


class Hops(msgspec.Struct, frozen=True):
    """Every value of a run, in the order in which its end was logged, in true nanoseconds."""

    submit_to_claim: tuple[Nanoseconds, ...]
    """One a submission."""
    publish_to_client: tuple[Nanoseconds, ...]
    """One a token; up to its streaming where no client logged."""
    to_front_end: tuple[Nanoseconds, ...]
    """From the client's sending to step 1."""
    to_client: tuple[Nanoseconds, ...]
    """From a token's streaming (step 13) to the client."""
    verbs: tuple[VerbTime, ...]
    """Of an emulation's front end; a simulation measures none."""


class HopFold:
    """Hops of all requests, by events of client, front end and scheduler."""

    state = HopState
    takes: frozenset[type[Event]] = frozenset(
        {
            RequestSent,
            RequestArrived,
            PromptWritten,
            SlotClaimed,
            TokensPublished,
            TokensStreamed,
            TokenReceived,
            VerbsMeasured,
        }
    )

    def start(self) -> HopState:
        """Nothing under way."""
        return HopState()

    def step(self, state: HopState, record: Record) -> HopState:
        """Takes one event; what has no beginning is passed over."""
        t = record.t
        match record.event:
            case RequestSent(name=name):
                state.sent[name] = t
            case RequestArrived(request=number, name=name):
                state.numbers[name] = number
                if name in state.sent:
                    state.to_front_end.append(t - state.sent.pop(name))
            case PromptWritten(request=number, slot=slot, incarnation=incarnation):
                _submitted(state, _key(number, slot, incarnation), t, state.written, state.claimed)
            case SlotClaimed(request=number, slot=slot, incarnation=incarnation):
                _submitted(state, _key(number, slot, incarnation), t, state.claimed, state.written)
            case TokensPublished(requests=numbers, counts=counts):
                for number, count in zip(numbers, counts, strict=False):
                    known = state.published.setdefault(number, [])
                    known.extend([t] * (count - len(known)))
            case TokensStreamed(request=number, first=first, count=count):
                _streamed(state, t, number, first, count)
            case TokenReceived(name=name, index=index, count=count):
                number = state.numbers.get(name, -1)
                _since(state.published.get(number), t, index, count, state.publish_to_client)
                _since(state.streamed.get(number), t, index, count, state.to_client)
            case VerbsMeasured(kind=kind, bytes=size, n=n, p50=p50):
                state.verbs.append(VerbTime(kind, size, n, p50))
        return state

    def result(self, state: HopState) -> Hops:
        """The values so far."""
        return Hops(
            submit_to_claim=tuple(state.submit_to_claim),
            publish_to_client=tuple(state.publish_to_client or state.publish_to_stream),
            to_front_end=tuple(state.to_front_end),
            to_client=tuple(state.to_client),
            verbs=tuple(state.verbs),
        )


def _key(number: int, slot: int, incarnation: int) -> str:
    """Of one submission; a text, since states are encoded."""
    return f"{number}/{slot}/{incarnation}"


def _submitted(
    state: HopState, key: str, t: Nanoseconds, own: dict[str, Nanoseconds], other: dict[str, Nanoseconds]
) -> None:
    """One end of a submission. A front end that logs its write after the claim has waited for no claim: 0."""
    if key in other:
        begun = other.pop(key)
        state.submit_to_claim.append(t - begun if other is state.written else 0)
    else:
        own[key] = t


def _streamed(state: HopState, t: Nanoseconds, number: int, first: int, count: int) -> None:
    known = state.streamed.setdefault(number, [])
    if first == len(known):
        known.extend([t] * count)
    _since(state.published.get(number), t, first, count, state.publish_to_stream)


def _since(
    begun: Sequence[Nanoseconds] | None, t: Nanoseconds, first: int, count: int, found: list[Nanoseconds]
) -> None:
    """Adds the time since each of the tokens `first` to `first + count - 1` began, as far as that is known."""
    if begun is not None and first >= 0:
        found.extend(t - moment for moment in begun[first : first + count])
