"""A run as Chrome trace JSON, for ui.perfetto.dev and chrome://tracing.

Three kinds of event suffice: `X` slices, `M` names and `C` counters. Viewers ask of one thread's slices that they
nest and never overlap, so each request, slot and GPU lane is a thread of its own, outer slices stand before inner
ones, and all are cut by `testbed.metrics.spans`. Times are true microseconds since the run's epoch.

The same timelines give the same bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec

from testbed.experiment.chrome_trace import TraceEvent, as_us, counter, process, slice_event, thread
from testbed.experiment.export_perfetto_traffic import traffic_events
from testbed.metrics.spans import RequestSpans, Span, launch_lanes, request_spans, slot_spans
from testbed.metrics.timeline import Launch, TimelineState
from testbed.metrics.traffic_timeline import TrafficState
from testbed.units import GBIT_PER_S

REQUESTS, SLOTS, LAUNCHES, QUEUES, LINKS = range(1, 6)
"""Process numbers of one trial; the next trial's are 10 higher."""
_PROCESSES = {
    REQUESTS: "requests",
    SLOTS: "ring slots",
    LAUNCHES: "GPU launches",
    QUEUES: "batch and KV blocks",
    LINKS: "links and virtual lanes",
}


def export_perfetto(timelines: Mapping[str, TimelineState], traffic: Mapping[str, TrafficState] | None = None) -> bytes:
    """The trace of one or more trials, by label; `traffic` is that of KV, where there is some."""
    events: list[TraceEvent] = []
    for place, (label, timeline) in enumerate(timelines.items()):
        prefix = f"{label}: " if len(timelines) > 1 else ""
        events.extend(_trial(timeline, 10 * place, prefix))
        if traffic and label in traffic:
            events.extend(traffic_events(traffic[label], 10 * place, prefix))
    trace = {"displayTimeUnit": "ms", "otherData": {"clock": "true time"}, "traceEvents": events}
    return msgspec.json.encode(trace) + b"\n"


def _trial(timeline: TimelineState, base: int, prefix: str) -> Iterator[TraceEvent]:
    for pid, words in _PROCESSES.items():
        yield from process(base + pid, prefix + words)
    for place, row in enumerate(request_spans(timeline), 1):
        yield from thread(base + REQUESTS, place, row.name)
        yield from _request(row, base + REQUESTS, place)
    yield from _slots(timeline, base + SLOTS)
    yield from _launches(timeline, base + LAUNCHES)
    yield from _counters(timeline, base)


def _request(row: RequestSpans, pid: int, tid: int) -> Iterator[TraceEvent]:
    args = {
        "request": row.request, "ring": row.ring, "slot": row.slot, "state": row.state, "reason": row.reason,
        "tokens": len(row.token_times),
        "steps": {str(step): [as_us(times.first), as_us(times.last), times.count] for step, times in row.steps},
    }  # fmt: skip
    yield slice_event(pid, tid, row.name, row.start, row.end, args)
    pauses = _cut_to(row.pauses, row.tokens)
    for phase in row.phases:
        yield slice_event(pid, tid, phase.what, phase.start, phase.end)
        if phase.what != "decode":
            continue
        for place, token in enumerate(row.tokens):
            yield slice_event(pid, tid, token.what, token.start, token.end)
            for pause in pauses.get(place, ()):
                yield slice_event(pid, tid, pause.what, pause.start, pause.end)


def _cut_to(pauses: tuple[Span, ...], tokens: tuple[Span, ...]) -> dict[int, list[Span]]:
    """Each pause inside the token's span in which it begins, and after the pause before it, by place of the token."""
    starts = [token.start for token in tokens]
    found: dict[int, list[Span]] = {}
    for pause in sorted(pauses, key=lambda span: (span.start, span.end)):
        place = bisect_right(starts, pause.start) - 1
        if place < 0:
            continue
        inside = found.setdefault(place, [])
        end = min(pause.end, tokens[place].end)
        start = max(pause.start, inside[-1].end if inside else pause.start)
        if start < end:
            inside.append(Span(pause.what, start, end))
    return found


def _slots(timeline: TimelineState, pid: int) -> Iterator[TraceEvent]:
    spans = slot_spans(timeline)
    rings = sorted({span.ring for span in spans})
    many = 1 + max((span.slot for span in spans), default=0)
    named: set[int] = set()
    for span in spans:
        # Thread numbers begin at 1: viewers take 0 for "no thread".
        tid = rings.index(span.ring) * many + span.slot + 1
        if tid not in named:
            named.add(tid)
            yield from thread(pid, tid, f"{span.ring} slot {span.slot}" if len(rings) > 1 else f"slot {span.slot}")
        args = {"request": span.request, "incarnation": span.incarnation}
        yield slice_event(pid, tid, span.state, span.start, span.end or span.start, args)


def _launches(timeline: TimelineState, pid: int) -> Iterator[TraceEvent]:
    tid = 0
    for node in sorted({launch.node for launch in timeline.launches} | {one.node for one in timeline.relaunches}):
        for place, lane in enumerate(launch_lanes([one for one in timeline.launches if one.node == node])):
            tid += 1
            yield from thread(pid, tid, node if place == 0 else f"{node}, overlapping")
            for launch in lane:
                yield _launch(launch, pid, tid)
        relaunches = [one for one in timeline.relaunches if one.node == node]
        if relaunches:
            tid += 1
            yield from thread(pid, tid, f"{node} window relaunches")
            free = 0
            for relaunch in relaunches:
                start = max(relaunch.t, free)
                free = max(relaunch.t + relaunch.gap, start)
                args = {"window": relaunch.window, "launches": relaunch.launches, "gap_ns": relaunch.gap}
                yield slice_event(pid, tid, "tail launch", start, free, args)


def _launch(launch: Launch, pid: int, tid: int) -> TraceEvent:
    start = launch.started or 0
    end = launch.done if launch.done is not None else start + launch.cost
    args = {
        "launch": launch.launch, "graph": launch.graph, "mode": launch.mode, "batch": launch.batch,
        "requests": launch.requests, "tokens": launch.tokens, "fallback": launch.fallback,
        "window": launch.window, "in_window": launch.in_window, "launch_cost_ns": launch.cost,
    }  # fmt: skip
    return slice_event(pid, tid, launch.kind, start, end, args)


def _counters(timeline: TimelineState, base: int) -> Iterator[TraceEvent]:
    for batch in timeline.batches:
        held = {"running": batch.running, "paused": batch.paused, "pending": batch.pending}
        yield counter(base + QUEUES, f"{batch.node} requests", batch.t, held)
        blocks = {"used": batch.kv_blocks_total - batch.kv_blocks_free, "free": batch.kv_blocks_free}
        yield counter(base + QUEUES, f"{batch.node} KV blocks", batch.t, blocks)
    for link in timeline.links:
        lane = "whole port" if link.lane < 0 else f"VL{link.lane}"
        rate = {"Gbit/s": round(link.rate_bits_per_s / GBIT_PER_S, 6)}
        yield counter(base + LINKS, f"{link.port} {lane}", link.t, rate)
