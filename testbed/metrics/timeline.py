"""Where each request was at each moment, what the device ran, and what the slots held: for traces and pictures.

Every request's events map one to one to the thirteen numbered steps of Blink's architecture figure
(`testbed.events.schema.BLINK_STEPS`); the fold keeps the first and last time and the count of each. A system that
lacks some steps has gaps in that table and nothing else changes.

Events of two nodes about one thing may stand in either order (a DPU logs its write when the completion arrives), so
the spans of a request are cut at moments that never go back.
"""

from __future__ import annotations

import msgspec

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.kv_events import TurnStage
from testbed.events.log import Record
from testbed.events.schema import (
    BLINK_STEPS,
    BatchChanged,
    GraphLaunched,
    GraphSelected,
    RequestAbandoned,
    RequestArrived,
    RequestRefused,
    RequestServed,
    SlotFound,
    SlotMoved,
    TokensPublished,
    TokensSampled,
    WindowRelaunched,
)
from testbed.machine import Event
from testbed.metrics.requests import ExchangeFold, ExchangeState
from testbed.metrics.ring_state import EMPTY, RingFold, RingState, advance
from testbed.units import Nanoseconds

PAUSED = "decode_paused"
"""The slot state in which a request waits for another's prefill."""
STEP_WORDS: dict[int, str] = {
    1: "request arrives at the DPU",
    2: "prompt is tokenised",
    3: "slot tracker is asked for an empty slot",
    4: "slot tracker names a slot",
    5: "prompt is written by RDMA into GPU memory",
    6: "resident scheduler claims the slot",
    7: "graph is chosen from the cache",
    8: "graph is launched on the device",
    9: "token is sampled inside the graph",
    10: "token and state are published in the ring",
    11: "token reader fetches it by RDMA",
    12: "token is made text",
    13: "text goes to the client as SSE",
}
"""The numbered circles of the figure, in our words."""
RINGLESS_STEP_WORDS: dict[int, str] = {
    1: "request arrives at the server",
    2: "prompt is tokenised",
    7: "graph is chosen from the cache",
    8: "graph is launched",
    9: "token is sampled inside the graph",
    10: "token is counted by the control loop",
    12: "token is made text",
    13: "text goes to the client as SSE",
}
"""Those that a server without a ring in GPU memory has too."""
_STEP_OF: dict[type[Event], int] = {event: step for step, event in BLINK_STEPS.items()}


class StepTimes(msgspec.Struct):
    """One step of one request: when first and last, and how often."""

    first: Nanoseconds
    last: Nanoseconds
    count: int


class Track(msgspec.Struct):
    """One request on the server's side."""

    request: int
    name: str = ""
    slot: int | None = None
    ring: str = ""
    """The GPU's node whose ring the slot is in; empty while that is not known."""
    steps: dict[int, StepTimes] = {}
    published: list[Nanoseconds] = []
    """When each token was in the ring."""
    pauses: list[tuple[Nanoseconds, Nanoseconds | None]] = []
    ended: Nanoseconds | None = None
    reason: str = ""


class Launch(msgspec.Struct):
    """One graph on the device. `done` is when its tokens were in the extraction buffer; `node` is then the device's."""

    node: str
    launch: int
    kind: str
    graph: str
    requests: tuple[int, ...]
    tokens: int
    fallback: bool
    started: Nanoseconds | None = None
    done: Nanoseconds | None = None
    mode: str = ""
    batch: int = 0
    window: int = 0
    in_window: int = 0
    cost: Nanoseconds = 0


class SlotSpan(msgspec.Struct):
    """A slot's time in one state. `end` is None while it lasts."""

    ring: str
    slot: int
    state: str
    start: Nanoseconds
    end: Nanoseconds | None
    request: int
    incarnation: int


class Batch(msgspec.Struct, frozen=True):
    """A batch.changed with its time."""

    t: Nanoseconds
    node: str
    running: int
    paused: int
    pending: int
    kv_blocks_free: int
    kv_blocks_total: int


class LinkReading(msgspec.Struct, frozen=True):
    """A link.measured with its time; lane -1 is the whole port."""

    t: Nanoseconds
    port: str
    lane: int
    rate_bits_per_s: int
    setting_bits_per_s: int
    drops: int


class Relaunch(msgspec.Struct, frozen=True):
    """A window.relaunched with its time."""

    t: Nanoseconds
    node: str
    window: int
    launches: int
    gap: Nanoseconds


class TimelineState(msgspec.Struct):
    """Everything that a picture of the run needs."""

    tracks: dict[int, Track] = {}
    exchanges: ExchangeState = msgspec.field(default_factory=ExchangeState)
    turns: dict[str, dict[str, Nanoseconds]] = {}
    """When an agent's turn entered each stage last, by its name."""
    launches: list[Launch] = []
    open_launches: dict[str, int] = {}
    """Place in `launches` of each launch that is not done, by "node number"."""
    ring: RingState = msgspec.field(default_factory=RingState)
    slot_spans: list[SlotSpan] = []
    """In the order in which they began; a slot's time as empty is left out."""
    open_slots: dict[str, int] = {}
    """Place in `slot_spans` of what each slot holds now, by "ring number"."""
    batches: list[Batch] = []
    links: list[LinkReading] = []
    relaunches: list[Relaunch] = []
    end: Nanoseconds = 0
    """The last moment anything was heard of."""


class TimelineFold:
    """Gathers tracks, launches, moves and readings. Its result is the state; `testbed.metrics.spans` cuts it up."""

    state = TimelineState
    takes: frozenset[type[Event]] = frozenset(
        (
            *BLINK_STEPS.values(), *ExchangeFold.takes, *RingFold.takes, BatchChanged, LinkMeasured, RequestRefused,
            TurnStage, WindowRelaunched,
        )
    )  # fmt: skip

    def start(self) -> TimelineState:
        """Nothing yet."""
        return TimelineState()

    def step(self, state: TimelineState, record: Record) -> TimelineState:
        """Takes one event."""
        event = record.event
        if type(event) not in self.takes:
            return state
        state.end = max(state.end, record.t)
        if type(event) in RingFold.takes:
            _take_slot(state, record)
        if type(event) in ExchangeFold.takes:
            ExchangeFold().step(state.exchanges, record)
        elif type(event) in _STEP_OF:
            _take_step(state, record, _STEP_OF[type(event)])
        else:
            _take_reading(state, record)
        return state

    def result(self, state: TimelineState) -> TimelineState:
        """A copy of all that was gathered."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=TimelineState)


def _take_step(state: TimelineState, record: Record, step: int) -> None:
    t, event = record.t, record.event
    match event:
        case RequestArrived(request=request, name=name):
            _track(state, request).name = name
        case SlotFound(request=request, slot=slot, ring=ring):
            track = _track(state, request)
            track.slot, track.ring = slot, ring
        case GraphSelected() | GraphLaunched() | TokensSampled():
            _take_launch(state, record)
        case TokensPublished(requests=requests, counts=counts):
            for request, count in zip(requests, counts, strict=False):
                published = _track(state, request).published
                published.extend([t] * (count - len(published)))
    for request in _requests_of(state, record):
        steps = _track(state, request).steps
        times = steps.get(step)
        if times is None:
            steps[step] = StepTimes(t, t, 1)
        else:
            times.last = t
            times.count += 1


def _requests_of(state: TimelineState, record: Record) -> tuple[int, ...]:
    """The requests that a step's event is about. A launch names none: its selection did."""
    event = record.event
    if isinstance(event, GraphLaunched):
        place = state.open_launches.get(_open_launch(state, record.node, event.launch))
        return state.launches[place].requests if place is not None else ()
    if isinstance(event, GraphSelected | TokensSampled | TokensPublished):
        return event.requests
    return (event.request,)  # type: ignore[attr-defined]  # every other event of BLINK_STEPS is about one request


def _take_launch(state: TimelineState, record: Record) -> None:
    node, event = record.node, record.event
    match event:
        case GraphSelected():
            state.open_launches[f"{node} {event.launch}"] = len(state.launches)
            state.launches.append(
                Launch(node, event.launch, event.kind, event.graph, event.requests, event.tokens, event.fallback)
            )
        case GraphLaunched():
            place = state.open_launches.get(_open_launch(state, node, event.launch))
            if place is None:
                # Launched without a look-up in the cache, as the baselines' eager kernels are.
                place = state.open_launches[f"{node} {event.launch}"] = len(state.launches)
                state.launches.append(Launch(node, event.launch, event.kind, event.graph, (), 0, False))
            launch = state.launches[place]
            launch.started, launch.mode, launch.batch = record.t, event.mode, event.batch
            launch.window, launch.in_window, launch.cost = event.window, event.in_window, event.cost
        case TokensSampled():
            place = state.open_launches.pop(_open_launch(state, node, event.launch), None)
            if place is not None:
                launch = state.launches[place]
                launch.node, launch.done = node, record.t


def _open_launch(state: TimelineState, node: str, launch: int) -> str:
    """The key of an open launch: the node's own, else the only one of that number.

    Where the control loop is not on the GPU, one node chooses a graph, another launches it and a third runs it.
    """
    key = f"{node} {launch}"
    if key in state.open_launches:
        return key
    others = [other for other in state.open_launches if other.endswith(f" {launch}")]
    return others[0] if len(others) == 1 else key


def _take_reading(state: TimelineState, record: Record) -> None:
    t, event = record.t, record.event
    match event:
        case TurnStage(turn=turn, stage=stage):
            state.turns.setdefault(turn, {})[stage] = t
        case SlotMoved():
            track = _track(state, event.request)
            track.ring = track.ring or record.node
            _take_pause(track, t, event)
        case BatchChanged():
            state.batches.append(
                Batch(t, record.node, event.running, event.paused, event.pending,
                      event.kv_blocks_free, event.kv_blocks_total)
            )  # fmt: skip
        case LinkMeasured():
            state.links.append(
                LinkReading(t, event.port, event.lane, event.rate_bits_per_s, event.setting_bits_per_s, event.drops)
            )
        case WindowRelaunched():
            state.relaunches.append(Relaunch(t, record.node, event.window, event.launches, event.gap))
        case RequestServed(request=request, reason=reason):
            _close(_track(state, request), t, reason)
        case RequestAbandoned(request=request):
            _close(_track(state, request), t, "abandoned")
        case RequestRefused(request=request, name=name, reason=reason):
            track = _track(state, request)
            track.name = track.name or name
            _close(track, t, reason)


def _take_slot(state: TimelineState, record: Record) -> None:
    place = advance(state.ring, record)
    if place is None:
        return
    key = f"{place.ring} {place.slot}"
    held = state.open_slots.pop(key, None)
    if held is not None:
        state.slot_spans[held].end = record.t
    slot = state.ring.rings[place.ring][place.slot]
    if slot.state != EMPTY:
        state.open_slots[key] = len(state.slot_spans)
        state.slot_spans.append(SlotSpan(*place, slot.state, record.t, None, slot.request, slot.incarnation))


def _take_pause(track: Track, t: Nanoseconds, move: SlotMoved) -> None:
    if move.after == PAUSED:
        track.pauses.append((t, None))
    elif move.before == PAUSED and track.pauses and track.pauses[-1][1] is None:
        track.pauses[-1] = (track.pauses[-1][0], t)


def _close(track: Track, t: Nanoseconds, reason: str) -> None:
    if track.ended is None:
        track.ended, track.reason = t, reason


def _track(state: TimelineState, request: int) -> Track:
    track = state.tracks.get(request)
    if track is None:
        track = state.tracks[request] = Track(request)
    return track
