"""What became of each request: as its client saw it, and as the server did. Every latency is made from these.

`ExchangeFold` reads the client's own events and `ServedFold` the front end's; both give `Exchange`s, so one set of
formulae (`testbed.metrics.latency`) serves both. Raw times of every chunk are kept. Identities that must hold
(sent = completed + failed + in flight; usage = tokens received) are checked, not assumed (faults 13 and 20).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.events.log import Record
from testbed.events.schema import (
    RequestAbandoned,
    RequestArrived,
    RequestRefused,
    RequestServed,
    RequestTokenised,
    TokensStreamed,
)
from testbed.machine import Event
from testbed.units import Nanoseconds


class Exchange(msgspec.Struct):
    """One request from its sending to its end. Folds change it; whoever gets it as a result does not."""

    name: str
    scheduled: Nanoseconds
    """When an open-loop client meant to send it."""
    sent: Nanoseconds
    prompt_tokens: int = 0
    max_tokens: int = 0
    times: list[Nanoseconds] = []
    """When each chunk came."""
    counts: list[int] = []
    """How many tokens each chunk had."""
    ended: Nanoseconds | None = None
    tokens: int = 0
    """The server's usage figure; 0 until the end."""
    reason: str = ""
    error: str = ""
    """Why it failed; empty while it has not."""

    @property
    def completed(self) -> bool:
        """True once the whole answer is there."""
        return self.ended is not None and not self.error

    @property
    def failed(self) -> bool:
        """True once it ended without a whole answer."""
        return bool(self.error)

    @property
    def received(self) -> int:
        """Tokens that came so far."""
        return sum(self.counts)

    @property
    def lag(self) -> Nanoseconds:
        """How long after its scheduled moment it was sent."""
        return self.sent - self.scheduled


class ExchangeState(msgspec.Struct):
    """All exchanges, and where each is found."""

    exchanges: list[Exchange] = []
    places: dict[str, int] = {}
    """Index of the newest exchange of a name (a client may use one again), or of a server's number."""
    strays: int = 0
    """Events about a request that was never begun."""


class RequestCounts(msgspec.Struct, frozen=True):
    """How many requests went which way."""

    sent: int
    completed: int
    failed: int
    in_flight: int
    tokens_received: int
    faults: tuple[str, ...] = ()
    """Identities that do not hold, one sentence each."""


class ExchangeFold:
    """The client's view: request.sent, token.received, request.finished, request.failed."""

    state = ExchangeState
    takes: frozenset[type[Event]] = frozenset({RequestSent, TokenReceived, RequestFinished, RequestFailed})

    def start(self) -> ExchangeState:
        """No request yet."""
        return ExchangeState()

    def step(self, state: ExchangeState, record: Record) -> ExchangeState:
        """Takes one event of a client."""
        match record.event:
            case RequestSent(name=name, scheduled=scheduled, prompt_tokens=prompt, max_tokens=most):
                _begin(state, Exchange(name, scheduled, record.t, prompt, most))
            case TokenReceived(name=name, count=count):
                _chunk(state, name, record.t, count)
            case RequestFinished(name=name, tokens=tokens, reason=reason):
                _end(state, name, record.t, tokens=tokens, reason=reason)
            case RequestFailed(name=name, error=error):
                _end(state, name, record.t, error=error or "failed")
        return state

    def result(self, state: ExchangeState) -> tuple[Exchange, ...]:
        """Every exchange, in the order of sending."""
        return _copies(state)


class ServedFold:
    """The front end's view: from request.arrived to the last tokens.streamed.

    For runs whose clients log nothing (`looplane serve`), and for what the front network and the client add.
    """

    state = ExchangeState
    takes: frozenset[type[Event]] = frozenset(
        {RequestArrived, RequestTokenised, TokensStreamed, RequestServed, RequestRefused, RequestAbandoned}
    )

    def start(self) -> ExchangeState:
        """No request yet."""
        return ExchangeState()

    def step(self, state: ExchangeState, record: Record) -> ExchangeState:
        """Takes one event of a front end."""
        match record.event:
            case RequestArrived(request=number, name=name, max_tokens=most):
                _begin(state, Exchange(name, record.t, record.t, 0, most), place=str(number))
            case RequestTokenised(request=number, tokens=tokens):
                if str(number) in state.places:
                    state.exchanges[state.places[str(number)]].prompt_tokens = tokens
            case TokensStreamed(request=number, count=count):
                _chunk(state, str(number), record.t, count)
            case RequestServed(request=number, tokens=tokens, reason=reason):
                _end(state, str(number), record.t, tokens=tokens, reason=reason)
            case RequestAbandoned(request=number):
                _end(state, str(number), record.t, error="abandoned")
            case RequestRefused(request=number, name=name, reason=reason):
                if str(number) not in state.places:
                    _begin(state, Exchange(name, record.t, record.t), place=str(number))
                _end(state, str(number), record.t, error=reason or "refused")
        return state

    def result(self, state: ExchangeState) -> tuple[Exchange, ...]:
        """Every exchange, in the order of arrival."""
        return _copies(state)


class CountFold:
    """Counts of the client's requests, with the identities checked."""

    state = ExchangeState
    takes: frozenset[type[Event]] = ExchangeFold.takes

    def start(self) -> ExchangeState:
        """No request yet."""
        return ExchangeState()

    def step(self, state: ExchangeState, record: Record) -> ExchangeState:
        """Takes one event of a client."""
        return ExchangeFold().step(state, record)

    def result(self, state: ExchangeState) -> RequestCounts:
        """The counts so far."""
        return count_requests(state.exchanges, state.strays)


def count_requests(exchanges: Sequence[Exchange], strays: int = 0) -> RequestCounts:
    """The counts of these exchanges; a mismatch between usage and received tokens is named."""
    completed = sum(exchange.completed for exchange in exchanges)
    failed = sum(exchange.failed for exchange in exchanges)
    faults = [
        f"{exchange.name}: usage says {exchange.tokens} tokens, {exchange.received} were received"
        for exchange in exchanges
        if exchange.completed and exchange.tokens != exchange.received
    ]
    if strays:
        faults.append(f"{strays} events of requests that were never sent")
    return RequestCounts(
        sent=len(exchanges),
        completed=completed,
        failed=failed,
        in_flight=len(exchanges) - completed - failed,
        tokens_received=sum(exchange.received for exchange in exchanges),
        faults=tuple(faults),
    )


def _copies(state: ExchangeState) -> tuple[Exchange, ...]:
    """Copies, so that a result does not move under whoever holds it while the fold goes on."""
    return tuple(
        msgspec.structs.replace(exchange, times=list(exchange.times), counts=list(exchange.counts))
        for exchange in state.exchanges
    )


def _begin(state: ExchangeState, exchange: Exchange, place: str | None = None) -> None:
    state.places[place if place is not None else exchange.name] = len(state.exchanges)
    state.exchanges.append(exchange)


def _chunk(state: ExchangeState, place: str, t: Nanoseconds, count: int) -> None:
    index = state.places.get(place)
    if index is None:
        state.strays += 1
        return
    state.exchanges[index].times.append(t)
    state.exchanges[index].counts.append(count)


def _end(
    state: ExchangeState, place: str, t: Nanoseconds, *, tokens: int = 0, reason: str = "", error: str = ""
) -> None:
    index = state.places.get(place)
    if index is None:
        state.strays += 1
        return
    exchange = state.exchanges[index]
    if exchange.ended is not None:
        state.strays += 1
        return
    exchange.ended, exchange.tokens, exchange.reason, exchange.error = t, tokens, reason, error
