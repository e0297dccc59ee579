"""How much was served: overall as vLLM's benchmark reckons it, and on fixed windows over the run.

Rates are counts over windows of one fixed length, never over the gap between two events: a rate over gaps of 0.1 ms
has a spread of hundreds where fifty requests a second came (fault 16). Windows are aligned to the run's epoch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.latency import tokens_of
from testbed.metrics.requests import Exchange
from testbed.units import SECOND, Nanoseconds


class WindowCount(msgspec.Struct):
    """What fell into one window."""

    sent: int = 0
    finished: int = 0
    failed: int = 0
    tokens: int = 0


class ThroughputState(msgspec.Struct):
    """Counts by window, and the first and last moment at which anything happened."""

    windows: dict[int, WindowCount] = {}
    first: Nanoseconds | None = None
    last: Nanoseconds = 0


class Rate(msgspec.Struct, frozen=True):
    """A rate per second over the whole windows of a run; None where there are none."""

    mean: float | None
    spread: float | None
    """Standard deviation over the windows (of a population)."""
    most: float | None


class Throughput(msgspec.Struct, frozen=True):
    """Rates on fixed windows."""

    window: Nanoseconds
    begin: Nanoseconds
    """Start of the first of `windows`."""
    windows: tuple[WindowCount, ...]
    """Every window from the first event to the last; the first and last may be partly outside."""
    whole: int
    """How many windows lie wholly inside; only these are in the rates."""
    sent_per_s: Rate
    finished_per_s: Rate
    tokens_per_s: Rate


class ThroughputFold:
    """Counts the clients' events on windows of `window` true nanoseconds."""

    state = ThroughputState
    takes: frozenset[type[Event]] = frozenset({RequestSent, RequestFinished, RequestFailed, TokenReceived})

    def __init__(self, window: Nanoseconds = SECOND) -> None:
        self._window = window

    def start(self) -> ThroughputState:
        """Nothing yet."""
        return ThroughputState()

    def step(self, state: ThroughputState, record: Record) -> ThroughputState:
        """Counts one event."""
        if type(record.event) not in self.takes:
            return state
        count = state.windows.setdefault(record.t // self._window, WindowCount())
        match record.event:
            case RequestSent():
                count.sent += 1
            case RequestFinished():
                count.finished += 1
            case RequestFailed():
                count.failed += 1
            case TokenReceived(count=tokens):
                count.tokens += tokens
        if state.first is None:
            state.first = record.t
        state.last = max(state.last, record.t)
        return state

    def result(self, state: ThroughputState) -> Throughput:
        """Windows and rates so far."""
        if state.first is None:
            nothing = Rate(None, None, None)
            return Throughput(self._window, 0, (), 0, nothing, nothing, nothing)
        low, high = state.first // self._window, state.last // self._window
        windows = tuple(
            msgspec.structs.replace(state.windows.get(index, WindowCount())) for index in range(low, high + 1)
        )
        whole = windows[(1 if state.first % self._window else 0) : -1]
        return Throughput(
            window=self._window,
            begin=low * self._window,
            windows=windows,
            whole=len(whole),
            sent_per_s=_rate([window.sent for window in whole], self._window),
            finished_per_s=_rate([window.finished for window in whole], self._window),
            tokens_per_s=_rate([window.tokens for window in whole], self._window),
        )


class Served(msgspec.Struct, frozen=True):
    """Overall throughput: what the completed requests got, over the time from the first sending to the last end."""

    span_s: float | None
    requests_per_s: float | None
    tokens_per_s: float | None
    """Output tokens of completed requests."""
    total_tokens_per_s: float | None
    """Prompt and output tokens of completed requests."""


def served(exchanges: Sequence[Exchange]) -> Served:
    """The overall throughput of `exchanges` (vLLM: only the successful count, over the whole duration)."""
    done = [exchange for exchange in exchanges if exchange.completed]
    ends = [exchange.ended for exchange in exchanges if exchange.ended is not None]
    span = max(ends) - min(exchange.sent for exchange in exchanges) if ends else 0
    if span <= 0:
        return Served(None, None, None, None)
    tokens = sum(tokens_of(exchange) for exchange in done)
    prompts = sum(exchange.prompt_tokens for exchange in done)
    return Served(
        span_s=span / SECOND,
        requests_per_s=_per_second(len(done), span),
        tokens_per_s=_per_second(tokens, span),
        total_tokens_per_s=_per_second(tokens + prompts, span),
    )


def _per_second(count: int, span: Nanoseconds) -> float:
    return round(count * SECOND / span, 6)


def _rate(counts: list[int], window: Nanoseconds) -> Rate:
    if not counts:
        return Rate(None, None, None)
    mean = sum(counts) / len(counts)
    spread = math.sqrt(math.fsum((count - mean) ** 2 for count in counts) / len(counts))
    scale = SECOND / window
    return Rate(round(mean * scale, 6), round(spread * scale, 6), round(max(counts) * scale, 6))
