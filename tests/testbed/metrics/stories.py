"""Event streams for tests: a small Blink run told event by event, and streams of events that make no sense at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from testbed.events import blink_events, schema
from testbed.events.fidelity_events import FaultInjected
from testbed.events.log import Record
from testbed.events.ordering import order
from testbed.events.prefix_events import PrefixReused
from testbed.machine import Event
from testbed.units import MILLISECOND

MS = MILLISECOND


class Story:
    """Collects events in any order and gives them as records in the one order, `seq` without gaps."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, Event]] = []

    def at(self, t_ms: float, node: str, *events: Event) -> Story:
        for event in events:
            self._events.append((round(t_ms * MS), node, event))
        return self

    def records(self) -> list[Record]:
        seqs: dict[str, int] = {}
        records = []
        for t, node, event in sorted(self._events, key=lambda item: item[0]):
            seq = seqs.get(node, 0)
            seqs[node] = seq + 1
            records.append(Record(t, node, seq, event))
        return sorted(records, key=order)


def started(clock: str = "simulated", dilation: float = 1.0, requests: int = 0) -> schema.RunStarted:
    return schema.RunStarted("blink", clock, dilation, 1, 7, requests)


def waited(percent: float, process: str = "node gpu0") -> schema.WaitMeasured:
    """A second in which a process had no CPU for so much of the time: what makes a wall-clock run degraded."""
    return schema.WaitMeasured(process, 1000 * MS, round(10 * percent * MS), MS, 25, 0)


def ask(
    story: Story, name: str, t_ms: float, arrivals: Sequence[float], *, lag_ms: float = 0, usage: int | None = None
) -> Story:
    """A client's view: sent at `t_ms`, one token at each of `arrivals`, finished with the last."""
    sent = schema.RequestSent(name, round((t_ms - lag_ms) * MS), round(lag_ms * MS), 10, len(arrivals))
    story.at(t_ms, "client0", sent)
    for index, arrival in enumerate(arrivals):
        story.at(arrival, "client0", schema.TokenReceived(name, index))
    tokens = len(arrivals) if usage is None else usage
    return story.at(arrivals[-1] if arrivals else t_ms + 1, "client0", schema.RequestFinished(name, tokens, "length"))


def serve(
    story: Story, request: int, t_ms: float, *, tokens: int = 3, slot: int | None = None, step_ms: float = 6,
    gpu: str = "gpu0", told: bool = True,
) -> Story:  # fmt: skip
    """One request through Blink's thirteen steps from its sending at `t_ms`; `q<request>` is its name.

    `told` is false where the front end does not name the ring, as none did once. The DPU logs its write 0.2 ms after
    the scheduler claimed the slot, as completions come late.
    """
    name = f"q{request}"
    slot = request if slot is None else slot
    moved = schema.SlotMoved
    ring = gpu if told else ""
    first = t_ms + 20
    published = [first + step_ms * k for k in range(tokens)]
    story.at(t_ms, "client0", schema.RequestSent(name, round(t_ms * MS), 0, 10, tokens))
    story.at(
        t_ms + 0.5, "dpu0",
        schema.RequestArrived(request, name, 40, tokens),
        schema.RequestTokenised(request, 10),
        schema.SlotSought(request, 4096),
        schema.SlotFound(request, slot, 1, ring),
    )  # fmt: skip
    story.at(
        t_ms + 1.0, gpu,
        schema.SlotClaimed(request, slot, 1, 5),
        moved(slot, 1, "prefill_pending", "prefill_processing", request),
    )  # fmt: skip
    story.at(t_ms + 1.2, "dpu0", schema.PromptWritten(request, slot, 1, 40, 2, 1, ring))
    for k, t in enumerate(published):
        launch = request * 1000 + k
        kind = "prefill" if k == 0 else "decode"
        begin = t_ms + 1.5 if k == 0 else t - step_ms + 0.5
        story.at(
            begin, gpu,
            schema.GraphSelected(launch, kind, f"{kind}-1", (request,), 10 + k, False),
            schema.GraphLaunched(launch, kind, f"{kind}-1", "fire_and_forget", 1, 0, k + 1, 2000),
        )  # fmt: skip
        story.at(t - 0.1, gpu, schema.TokensSampled(launch, (request,), (k,)))
        story.at(t, gpu, schema.TokensPublished(launch, (request,), (k + 1,)))
        if k == 0:
            story.at(t, gpu, moved(slot, 1, "prefill_processing", "decode_processing", request))
        story.at(
            t + 0.2, "dpu0",
            schema.TokensRead(request, k, 1, k == 0),
            schema.TokensDetokenised(request, k, 1, "a"),
            schema.TokensStreamed(request, k, 1),
        )  # fmt: skip
        story.at(t + 0.5, "client0", schema.TokenReceived(name, k))
    last = published[-1]
    story.at(last, gpu, moved(slot, 1, "decode_processing", "decode_completed", request))
    story.at(last + 0.3, "dpu0", schema.RequestServed(request, tokens, "length"))
    return story.at(last + 0.6, "client0", schema.RequestFinished(name, tokens, "length"))


def small_run(requests: int = 4, tokens: int = 5, gap_ms: float = 100) -> list[Record]:
    """A whole simulated run of `requests` one after another."""
    story = Story().at(0, "bench", started(requests=requests))
    for request in range(1, requests + 1):
        serve(story, request, gap_ms * request, tokens=tokens)
    end = gap_ms * (requests + 2)
    story.at(50, "gpu0", schema.BatchChanged(1, 0, 0, 90, 100))
    return story.at(end, "bench", schema.RunFinished("passed")).records()


def outage(*, told: bool = True) -> Story:
    """A scheduler dies at 100 ms while one stream runs, one ends in between and one has nothing yet."""
    story = Story()
    for name in ("running", "ending"):
        story.at(90, "client0", schema.TokenReceived(name, 0))
    if told:
        story.at(100, "bench", FaultInjected("gpu0", "kill-scheduler"))
    story.at(101, "client0", schema.TokenReceived("running", 1))
    story.at(102, "client0", schema.RequestFinished("ending", 1, "length"))
    story.at(300, "dpu0", blink_events.WatchdogFired(0, 200 * MS, 1, "gpu0"))
    story.at(310, "gpu0", blink_events.SchedulerRestarted(1, 0, 2, 1, 1))
    story.at(330, "gpu0", schema.TokensPublished(9, (1,), (3,)))
    story.at(340, "client0", schema.TokenReceived("running", 2), schema.TokenReceived("new", 0))
    story.at(345, "dpu0", blink_events.WatchdogCalmed(1, 245 * MS, "gpu0"))
    return story.at(350, "gpu0", schema.TokensPublished(10, (1,), (4,)))


def lookups() -> Story:
    """Two schedulers look prompts up: 96 of 300 tokens are found, in three of four prompts, and 6 blocks make room."""
    story = Story().at(1, "gpu0", PrefixReused(1, 100, 0, 0, 0)).at(2, "gpu0", PrefixReused(2, 100, 48, 3, 2))
    return story.at(3, "gpu1", PrefixReused(3, 40, 16, 1, 1)).at(4, "gpu0", PrefixReused(4, 60, 32, 3, 5))


_SMALL = st.integers(0, 5)
_TEXTS = st.sampled_from(
    ["q1", "q2", "empty", "prefill_pending", "decode_paused", "decode_processing", "simulated", "wall", "client", ""]
)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _SMALL,
    str: _TEXTS,
    bool: st.booleans(),
    float: st.floats(-1, 120, allow_nan=False),
    tuple[int, ...]: st.lists(_SMALL, max_size=3).map(tuple),
    tuple[str, ...]: st.lists(_TEXTS, max_size=2).map(tuple),
}


def events() -> st.SearchStrategy[Event]:
    """Any event of the schema, with small numbers, so that events meet on the same request, slot and launch."""
    return st.sampled_from(get_args(schema.AnyEvent)).flatmap(_of_type)


def _of_type(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind)
    fields = {name: _BY_TYPE[hints[name]] for name in kind.__struct_fields__}
    if kind is schema.RunStarted:
        fields["dilation"] = st.floats(0.5, 50)
    return st.builds(kind, **fields)


@st.composite
def nonsense(draw: st.DrawFn, size: int = 40) -> list[Record]:
    """A log in order whose events need not make sense together."""
    story = Story()
    t = -2.0
    for event in draw(st.lists(events(), max_size=size)):
        t += draw(st.integers(0, 3))
        story.at(t, draw(st.sampled_from(["client0", "dpu0", "gpu0", "gpu1"])), event)
    return story.records()


@st.composite
def sensible(draw: st.DrawFn) -> list[Record]:
    """A run of a few requests that overlap as they may."""
    story = Story().at(0, "bench", started(requests=3))
    for request in range(1, draw(st.integers(1, 4)) + 1):
        gpu = draw(st.sampled_from(["gpu0", "gpu1"]))
        serve(story, request, draw(st.integers(1, 60)), tokens=draw(st.integers(1, 6)), slot=request % 3, gpu=gpu)
    return story.records()
