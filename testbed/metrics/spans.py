"""A timeline cut into spans that nest and never overlap: what a trace viewer and a picture can draw as it is.

Phases of a request: sending (client to front end), queued (until the scheduler claims it; for an agent's turn, until
its KV is there), prefill (until its first token is published), decode (until its last), delivery (until the client has
it all). Where a moment is unknown the
phase before it runs on to the request's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from testbed.metrics.requests import Exchange
from testbed.metrics.timeline import RINGLESS_STEP_WORDS, STEP_WORDS, Launch, SlotSpan, StepTimes, TimelineState, Track
from testbed.units import Nanoseconds

PHASES = ("sending", "queued", "prefill", "decode", "delivery")


class Span(msgspec.Struct, frozen=True):
    """Something that lasted from `start` to `end`."""

    what: str
    start: Nanoseconds
    end: Nanoseconds


class RequestSpans(msgspec.Struct, frozen=True):
    """One request as a row of a picture."""

    name: str
    request: int | None
    """The server's number; None if no server ever logged it."""
    slot: int | None
    ring: str
    """The GPU's node whose ring the slot is in; empty if it has none, or the log does not say."""
    start: Nanoseconds
    end: Nanoseconds
    phases: tuple[Span, ...]
    tokens: tuple[Span, ...]
    """Inside `decode`: from each token to the next."""
    token_times: tuple[Nanoseconds, ...]
    """When each token was published, or where no server logged that, received."""
    published: bool
    """True where `token_times` are the server's."""
    pauses: tuple[Span, ...]
    """Inside `decode`."""
    steps: tuple[tuple[int, StepTimes], ...]
    state: str
    """done, failed or running."""
    reason: str


class StepRow(msgspec.Struct, frozen=True):
    """One row of the thirteen-step table of a request; times are since its sending."""

    step: int
    words: str
    first: Nanoseconds | None
    last: Nanoseconds | None
    count: int


def request_spans(timeline: TimelineState) -> tuple[RequestSpans, ...]:
    """All requests, in the order of sending (or arrival, where no client logged)."""
    exchanges = {exchange.name: exchange for exchange in timeline.exchanges.exchanges}
    rows = [_row(track, exchanges.pop(track.name, None), timeline.end) for track in timeline.tracks.values()]
    rows.extend(_row(None, one, timeline.end, timeline.turns.get(one.name)) for one in exchanges.values())
    return tuple(sorted((row for row in rows if row is not None), key=lambda row: (row.start, row.name)))


def _row(
    track: Track | None, exchange: Exchange | None, now: Nanoseconds, stages: Mapping[str, Nanoseconds] | None = None
) -> RequestSpans | None:
    steps = dict(track.steps) if track is not None else {}
    begin = exchange.sent if exchange is not None else steps[1].first if 1 in steps else None
    if begin is None:
        return None
    ended = exchange.ended if exchange is not None else track.ended if track is not None else None
    end = max(begin, now if ended is None else ended)
    times = list(track.published) if track is not None and track.published else list(_received(exchange))
    told = stages or {}
    marks: list[Nanoseconds | None] = [
        begin,
        steps[1].first if 1 in steps else told.get("queued"),
        steps[6].first if 6 in steps else steps[7].first if 7 in steps else told.get("prefilling", told.get("ready")),
        times[0] if times else None,
        times[-1] if times and ended is not None else None,
    ]
    phases = _phases(marks, end)
    decode = next((phase for phase in phases if phase.what == "decode"), None)
    return RequestSpans(
        name=exchange.name if exchange is not None else track.name if track is not None else "",
        request=track.request if track is not None else None,
        slot=track.slot if track is not None else None,
        ring=track.ring if track is not None else "",
        start=begin,
        end=end,
        phases=phases,
        tokens=_between(times, decode),
        token_times=tuple(times),
        published=track is not None and bool(track.published),
        pauses=_pauses(track, decode),
        steps=tuple(sorted(steps.items())),
        state="running" if ended is None else "failed" if exchange is not None and exchange.failed else "done",
        reason=(exchange.error or exchange.reason) if exchange is not None else track.reason if track else "",
    )


def _received(exchange: Exchange | None) -> Sequence[Nanoseconds]:
    if exchange is None:
        return ()
    return [t for t, count in zip(exchange.times, exchange.counts, strict=True) for _ in range(count)]


def _phases(marks: Sequence[Nanoseconds | None], end: Nanoseconds) -> tuple[Span, ...]:
    """Spans between the known marks, which are made to rise and to stay before `end`."""
    known: list[tuple[str, Nanoseconds]] = []
    low = 0
    for what, mark in zip(PHASES, marks, strict=True):
        if mark is not None:
            low = min(max(mark, low if known else mark), end)
            known.append((what, low))
    ends = [start for _, start in known[1:]] + [end]
    return tuple(Span(what, start, stop) for (what, start), stop in zip(known, ends, strict=True))


def _between(times: Sequence[Nanoseconds], decode: Span | None) -> tuple[Span, ...]:
    if decode is None:
        return ()
    inside = [min(max(t, decode.start), decode.end) for t in times]
    return tuple(Span(f"token {place}", start, stop) for place, (start, stop) in enumerate(pairwise(inside), 1))


def _pauses(track: Track | None, decode: Span | None) -> tuple[Span, ...]:
    if track is None or decode is None:
        return ()
    spans = []
    for start, stop in track.pauses:
        low = min(max(start, decode.start), decode.end)
        high = min(max(decode.end if stop is None else stop, low), decode.end)
        spans.append(Span("paused", low, high))
    return tuple(spans)


def slot_spans(timeline: TimelineState) -> tuple[SlotSpan, ...]:
    """What each slot held and when, by ring, slot and time; what lasts still ends with the log."""
    ended = [span if span.end is not None else replace(span, end=timeline.end) for span in timeline.slot_spans]
    return tuple(sorted(ended, key=lambda span: (span.ring, span.slot, span.start)))


def launch_lanes(launches: Sequence[Launch]) -> tuple[tuple[Launch, ...], ...]:
    """The launches that ran, dealt out to as few lanes as keep those of one lane apart in time."""
    lanes: list[list[Launch]] = []
    ends: list[Nanoseconds] = []
    for launch in sorted((one for one in launches if one.started is not None), key=lambda one: one.started or 0):
        start = launch.started or 0
        end = launch.done if launch.done is not None else start + launch.cost
        for place, free in enumerate(ends):
            if free <= start:
                lanes[place].append(launch)
                ends[place] = end
                break
        else:
            lanes.append([launch])
            ends.append(end)
    return tuple(tuple(lane) for lane in lanes)


def step_table(row: RequestSpans) -> tuple[StepRow, ...]:
    """The thirteen steps of a request, those that never happened included; of a server without a ring its eight."""
    times = dict(row.steps)
    rows = []
    ringless = row.slot is None and 7 in times
    for step, words in (RINGLESS_STEP_WORDS if ringless else STEP_WORDS).items():
        seen = times.get(step)
        first = seen.first - row.start if seen else None
        rows.append(StepRow(step, words, first, seen.last - row.start if seen else None, seen.count if seen else 0))
    return tuple(rows)
