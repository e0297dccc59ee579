"""Pictures of a run as plain geometry: histograms and timelines in SVG's own units, ready for a template.

Nothing here is text of a run's author except labels, which the template escapes; paths are numbers only. The marks
are those of the console's timeline: queued is a thin line with a start bar, prefill full height, a token one tick, a
pause dashes on the middle line, done an end bar; under 2.8 units a token the ticks become a band.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from testbed.metrics.spans import RequestSpans
from testbed.metrics.timeline import Launch, TimelineState
from testbed.units import MILLISECOND, SECOND, Nanoseconds

WIDTH = 1200.0
GUTTER = 180.0
"""Left of the axis: names and counts."""
ROW = 16.0
MARK = 12.0
"""Height of a request's marks."""
TICK_ROOM = 2.8
"""Least units a token that ticks need."""
TOP = 24.0
STRIP = 46.0
"""Height of a strip for launches, batch or a lane."""
MOST_PORTS = 6
"""Ports that get strips: those that came nearest to their setting."""


class Bar(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""


class Histogram(NamedTuple):
    """Bars in a box of `width` by `height`; the lines are at the median and p99."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    p50: float | None
    p99: float | None
    upper_ms: float
    """Right end of the axis; values beyond it are in the last bar."""


class TimelineRow(NamedTuple):
    """One request's marks."""

    name: str
    note: str
    title: str
    y: float
    queued: Bar | None
    prefill: Bar | None
    band: Bar | None
    ticks: str
    """Path of the token ticks."""
    pauses: str
    """Path of the dashes."""
    end: float | None
    """Where the end bar stands."""
    failed: bool


class Strip(NamedTuple):
    """A filled line under the requests, e.g. what a lane carried."""

    name: str
    note: str
    y: float
    line: str
    area: str
    lane: int
    """Which lane's colour; -1 for none."""


class Tick(NamedTuple):
    """A mark of the time axis."""

    x: float
    label: str


class Picture(NamedTuple):
    """A timeline."""

    width: float
    height: float
    gutter: float
    axis_end: float
    ticks: tuple[Tick, ...]
    rows: tuple[TimelineRow, ...]
    left_out: int
    """Requests that are not drawn."""
    launches: tuple[Bar, ...]
    launches_y: float
    strips: tuple[Strip, ...]
    label: str
    ports_left_out: int = 0
    """Ports that are not drawn."""


def histogram(values_ms: Sequence[float], p50: float | None, p99: float | None, *, bins: int = 44) -> Histogram:
    """Counts of `values_ms` from 0 to a little beyond p99 (or the largest value, where there is no p99)."""
    width, height = 4.0 * bins, 44.0
    if not values_ms:
        return Histogram(width, height, (), None, None, 0.0)
    upper = (p99 * 1.25 if p99 is not None else max(values_ms) * 1.02) or 1.0
    counts = [0] * bins
    for value in values_ms:
        counts[min(bins - 1, int(value / upper * bins))] += 1
    most = max(counts)
    bars = []
    for place, count in enumerate(counts):
        if count:
            tall = max(1.5, count / most * 40)
            low, high = place * upper / bins, (place + 1) * upper / bins
            title = (
                f"{low:.1f} to {high:.1f} ms: {count:,}" if place < bins - 1 else f"{low:.1f} ms and more: {count:,}"
            )
            bars.append(Bar(_r(place * 4.0), _r(42 - tall), 3.0, _r(tall), title))

    def at(value: float | None) -> float | None:
        return None if value is None else _r(min(value / upper, 1.0) * width)

    return Histogram(width, height, tuple(bars), at(p50), at(p99), upper)


class Axis(NamedTuple):
    """From time to x."""

    begin: Nanoseconds
    end: Nanoseconds

    def x(self, t: Nanoseconds) -> float:
        """Where `t` stands, inside the axis."""
        share = (min(max(t, self.begin), self.end) - self.begin) / max(1, self.end - self.begin)
        return _r(GUTTER + share * (WIDTH - GUTTER - 8))

    def overlaps(self, start: Nanoseconds, end: Nanoseconds) -> bool:
        """Whether a span shows."""
        return start <= self.end and end >= self.begin

    def ticks(self) -> tuple[Tick, ...]:
        """About ten round moments, in seconds or milliseconds."""
        raw = (self.end - self.begin) / 10 or 1
        step = next(base * 10**power for power in range(20) for base in (1, 2, 5) if base * 10**power >= raw)
        first = -(-self.begin // step) * step
        return tuple(Tick(self.x(t), _time(t, step)) for t in range(first, self.end + 1, step))


def whole_run(timeline: TimelineState, rows: Sequence[RequestSpans], *, most: int = 64) -> Picture:
    """Every request up to `most`, with the batch and the lanes below."""
    begin = min((row.start for row in rows), default=0)
    end = max((row.end for row in rows), default=begin + MILLISECOND)
    return _picture(timeline, rows, Axis(begin, end), most, launches=False)


def close_up(timeline: TimelineState, rows: Sequence[RequestSpans], *, most: int = 24) -> Picture | None:
    """A stretch short enough to see single tokens and launches: from where most requests run; None without tokens."""
    gaps = sorted(token.end - token.start for row in rows for token in row.tokens)
    gap = gaps[len(gaps) // 2] if gaps else 0
    if gap <= 0:
        return None
    length = 90 * gap
    edges = sorted([(row.start, 1) for row in rows] + [(row.end, -1) for row in rows])
    open_now, best, begin = 0, -1, edges[0][0]
    for t, change in edges:
        open_now += change
        if open_now > best:
            best, begin = open_now, t
    axis = Axis(begin - length // 10, begin - length // 10 + length)
    seen = [row for row in rows if axis.overlaps(row.start, row.end)]
    return _picture(timeline, seen, axis, most, launches=True)


def _picture(
    timeline: TimelineState, rows: Sequence[RequestSpans], axis: Axis, most: int, *, launches: bool
) -> Picture:
    drawn = tuple(_row(row, axis, TOP + place * ROW) for place, row in enumerate(rows[:most]))
    y = TOP + len(drawn) * ROW + 8
    launches_y = y
    bars: tuple[Bar, ...] = ()
    if launches:
        bars = _launch_bars(timeline.launches, axis, y)
        y += STRIP - 10 if bars else 0
    strips = []
    for name, note, points, peak, lane in _series(timeline):
        inside = [(t, value) for t, value in points if axis.begin <= t <= axis.end]
        if len(inside) > 1 and peak > 0:
            strips.append(_strip(name, note, inside, peak, axis, y, lane))
            y += STRIP
    label = f"Timeline of {len(drawn)} requests from {_time(axis.begin, MILLISECOND)} to {_time(axis.end, MILLISECOND)}"
    return Picture(
        WIDTH, _r(y + 8), GUTTER, WIDTH - 8, axis.ticks(), drawn, len(rows) - len(drawn), bars, _r(launches_y),
        tuple(strips), label, max(0, len({link.port for link in timeline.links}) - MOST_PORTS),
    )  # fmt: skip


def _row(row: RequestSpans, axis: Axis, y: float) -> TimelineRow:
    phases = {phase.what: phase for phase in row.phases}
    wait_end = (
        phases["prefill"].start if "prefill" in phases else phases["decode"].start if "decode" in phases else row.end
    )
    times = [t for t in row.token_times if axis.begin <= t <= axis.end]
    middle, top = y + MARK / 2, y + MARK * 0.19
    queued = _bar(axis, row.start, wait_end, middle - 0.75, 1.5)
    prefill = _bar(axis, phases["prefill"].start, phases["prefill"].end, y, MARK) if "prefill" in phases else None
    band, ticks = None, ""
    if len(times) > 1:
        room = (axis.x(times[-1]) - axis.x(times[0])) / (len(times) - 1)
        if room < TICK_ROOM:
            band = _bar(axis, times[0], times[-1], top, MARK * 0.62)
    if times and band is None:
        ticks = "".join(f"M{axis.x(t)} {_r(top)}v{_r(MARK * 0.62)}" for t in times)
    pauses = "".join(
        f"M{axis.x(pause.start)} {_r(middle)}H{axis.x(pause.end)}"
        for pause in row.pauses
        if axis.overlaps(pause.start, pause.end)
    )
    count = len(row.token_times)
    ended = row.state != "running" and axis.begin <= row.end <= axis.end
    first = f", first after {(row.token_times[0] - row.start) / MILLISECOND:.1f} ms" if count else ""
    title = f"{row.name}: {row.state}{' (' + row.reason + ')' if row.reason else ''}, {count:,} tokens{first}"
    note = f"{count:,} tokens" if row.state == "done" else row.state
    return TimelineRow(
        row.name, note, title, _r(y), queued, prefill, band, ticks, pauses,
        axis.x(row.end) if ended else None, row.state == "failed",
    )  # fmt: skip


def _bar(axis: Axis, start: Nanoseconds, end: Nanoseconds, y: float, height: float) -> Bar | None:
    if not axis.overlaps(start, end):
        return None
    left, right = axis.x(start), axis.x(end)
    return Bar(left, _r(y), max(_r(right - left), 1.0), _r(height))


def _launch_bars(launches: Sequence[Launch], axis: Axis, y: float) -> tuple[Bar, ...]:
    """One bar a launch; its height is the batch."""
    shown = [
        (one, one.started, one.done if one.done is not None else one.started + one.cost)
        for one in launches
        if one.started is not None
    ]
    largest = max((one.batch for one, _, _ in shown), default=0) or 1
    bars = []
    for one, start, end in shown:
        if axis.overlaps(start, end):
            tall = 4 + 20 * one.batch / largest
            title = f"{one.kind} {one.graph}, batch {one.batch}, {(end - start) / MILLISECOND:.2f} ms, {one.mode}"
            width = max(_r(axis.x(end) - axis.x(start) - 0.6), 0.8)
            bars.append(Bar(axis.x(start), _r(y + 26 - tall), width, _r(tall), title))
    return tuple(bars)


Series = tuple[str, str, list[tuple[Nanoseconds, float]], float, int]


def _series(timeline: TimelineState) -> list[Series]:
    """Name, note, points, top of the scale, lane."""
    found: list[Series] = []
    running = [(batch.t, float(batch.running + batch.paused)) for batch in timeline.batches]
    if running:
        peak = max(value for _, value in running)
        found.append(("Batch", f"with paused, at most {peak:.0f}", running, peak, -1))
    lanes: dict[tuple[str, int], list[tuple[Nanoseconds, float]]] = {}
    nearest: dict[str, float] = {}
    for link in timeline.links:
        share = link.rate_bits_per_s / link.setting_bits_per_s if link.setting_bits_per_s else 0.0
        nearest[link.port] = max(share, nearest.get(link.port, 0.0))
    ports = sorted(nearest, key=lambda port: (-nearest[port], port))[:MOST_PORTS]
    for link in timeline.links:
        if link.port not in ports:
            continue
        lanes.setdefault((link.port, link.lane), []).append((link.t, link.rate_bits_per_s / 1e9))
    for (port, lane), points in sorted(lanes.items()):
        peak = max(value for _, value in points)
        name = f"{port} VL{lane}" if lane >= 0 else port
        found.append((name, f"at most {peak:.3g} Gbit/s", points, peak, lane))
    return found


def _strip(
    name: str, note: str, points: Sequence[tuple[Nanoseconds, float]], peak: float, axis: Axis, y: float, lane: int
) -> Strip:
    floor = y + STRIP - 4
    place = [(axis.x(t), _r(floor - value / peak * (STRIP - 10))) for t, value in points]
    line = "M" + "L".join(f"{x} {top}" for x, top in place)
    return Strip(name, note, _r(y), line, f"{line}L{place[-1][0]} {_r(floor)}L{place[0][0]} {_r(floor)}Z", lane)


def _time(t: Nanoseconds, step: Nanoseconds) -> str:
    if step >= SECOND:
        return f"{t / SECOND:.0f} s"
    digits = len(str(max(1, SECOND // step))) - 1
    return f"{t / SECOND:.{min(max(digits, 1), 6)}f} s"


def _r(value: float) -> float:
    return round(value, 2)
