"""Every event that Looplane logs, as one union, and those of a server's thirteen steps; others in modules beside it.

An event says what *has* happened (`noun.verbed`). It holds facts in true units; the driver that logs it adds `t`
(true nanoseconds since the run's epoch), `node` and `seq` (see `testbed.events.log`). Unknown fields are refused.

`request` is the server's number for a request, unique in a run; `name` is what the client called it (x-request-id).
`request.arrived` ties the two. `slot` is a place in a ring, `incarnation` how often that place has been used. Every
GPU has a ring: events of the scheduler are about their own node's, and those of the front end name it (`ring`, the
GPU's node; empty in logs of before it was named, see `testbed.metrics.ring_state`).
Steps 1-13 are the numbered circles of Blink's architecture figure (papers/blink summary, Figure 2).
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias, Union

from testbed.events.blink_events import SchedulerRestarted, WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.events.fidelity_events import (
    CaptureFinished,
    ClockLate,
    ClockMeasured,
    CpuMeasured,
    FaultInjected,
    FidelityJudged,
    HardwareEngaged,
    HostChanged,
    LanesApplied,
    LinkMeasured,
    RnicMeasured,
    VerbsMeasured,
    WaitMeasured,
)
from testbed.events.host_events import (
    CountersMeasured,
    GraphMeasured,
    HostOperation,
    LaunchGap,
    MitigationApplied,
    NeighbourEnded,
    NeighbourMeasured,
    NeighbourStarted,
    ProcessorCalibrated,
)
from testbed.events.kv_events import (
    AgentFinished,
    AgentStarted,
    AttentionMeasured,
    BlockRejected,
    BufferMeasured,
    ChunkServed,
    CollectiveFinished,
    EngineMeasured,
    ForwardFinished,
    NodeLost,
    PathChosen,
    PortForecast,
    ReadQueueMeasured,
    TransferFinished,
    TurnPlaced,
    TurnReplaced,
    TurnStage,
)
from testbed.events.prefix_events import PrefixReused
from testbed.events.run_events import (
    HostProvisioned,
    LineLogged,
    NodeHeartbeat,
    NodeReady,
    NodeStopped,
    RunFinished,
    RunStarted,
    StageEntered,
)
from testbed.machine import Event
from testbed.units import Nanoseconds

# --- one request, steps 1-5: network, tokeniser, slot tracker, RDMA write ---------------------------------------


class RequestArrived(Event, frozen=True, tag="request.arrived"):
    """Step 1: the front end has the client's request."""

    request: int
    name: str
    prompt_characters: int
    max_tokens: int


class RequestTokenised(Event, frozen=True, tag="request.tokenised"):
    """Step 2: the prompt is token ids."""

    request: int
    tokens: int


class SlotSought(Event, frozen=True, tag="slot.sought"):
    """Step 3: the slot tracker is asked for an empty slot; `free` is how many its cache knows."""

    request: int
    free: int


class SlotFound(Event, frozen=True, tag="slot.found"):
    """Step 4: the slot tracker names a slot, after `probes` looks at its cache."""

    request: int
    slot: int
    probes: int
    ring: str = ""
    """Node whose ring it is a slot of."""


class PromptWritten(Event, frozen=True, tag="prompt.written"):
    """Step 5: prompt and descriptor lie in GPU memory; the swap that makes the slot `prefill_pending` is on its way.

    `operations` is how many RDMA operations carried the burst in which this prompt travelled, `burst` how many
    prompts it held.
    """

    request: int
    slot: int
    incarnation: int
    bytes: int
    operations: int
    burst: int
    ring: str = ""
    """Node whose ring it is a slot of."""


class RequestRefused(Event, frozen=True, tag="request.refused"):
    """The front end could not take the request."""

    request: int
    name: str
    reason: str
    """ring_full, context_length_exceeded, invalid_request, unavailable, ..."""
    level: ClassVar[str] = "warning"


class RequestAbandoned(Event, frozen=True, tag="request.abandoned"):
    """The client went away; slot and KV blocks are freed."""

    request: int
    level: ClassVar[str] = "warning"


class RequestServed(Event, frozen=True, tag="request.served"):
    """The front end has streamed the last token and released the slot."""

    request: int
    tokens: int
    reason: str
    """stop, length or cancelled."""


# --- steps 6-10: the resident scheduler and the device --------------------------------------------------------


class SlotClaimed(Event, frozen=True, tag="slot.claimed"):
    """Step 6: the resident scheduler found the pending slot in a scan and claimed it by compare-and-swap."""

    request: int
    slot: int
    incarnation: int
    scan: int
    """Number of the ring scan that found it."""


class SlotMoved(Event, frozen=True, tag="slot.moved"):
    """A slot changed state by a move of the table (testbed.blink.slots)."""

    slot: int
    incarnation: int
    before: str
    after: str
    request: int


class GraphSelected(Event, frozen=True, tag="graph.selected"):
    """Step 7: the cached graph for the present batch, by one look-up."""

    launch: int
    kind: str
    """prefill or decode; chunk (part of a prompt) or mixed (a decode step with one) where prompts are cut."""
    graph: str
    requests: tuple[int, ...]
    tokens: int
    """Longest sequence in the batch, in tokens."""
    fallback: bool
    """True when no grid point fitted and the largest shape was taken."""


class GraphLaunched(Event, frozen=True, tag="graph.launched"):
    """Step 8: the graph runs on the device."""

    launch: int
    kind: str
    graph: str
    mode: str
    """fire_and_forget, tail, or host for the baselines."""
    batch: int
    window: int
    """Which launch window this is, from 0."""
    in_window: int
    """Fire-and-forget launches so far in this window, this one included (at most 120)."""
    cost: Nanoseconds


class TokensSampled(Event, frozen=True, tag="tokens.sampled"):
    """Step 9: the graph's own sampling has put one token for each request into the extraction buffer."""

    launch: int
    requests: tuple[int, ...]
    tokens: tuple[int, ...]


class TokensPublished(Event, frozen=True, tag="tokens.published"):
    """Step 10: tokens, generation counts and states are in the ring; `counts` are tokens generated so far."""

    launch: int
    requests: tuple[int, ...]
    counts: tuple[int, ...]


class WindowRelaunched(Event, frozen=True, tag="window.relaunched"):
    """The scheduler tail-launched itself: the window's count is 0 again, and the drain cost `gap`."""

    window: int
    launches: int
    gap: Nanoseconds


class BatchChanged(Event, frozen=True, tag="batch.changed"):
    """Membership of the running batch after a step; KV blocks left in the pool."""

    running: int
    paused: int
    pending: int
    kv_blocks_free: int
    kv_blocks_total: int


class DeviceFaulted(Event, frozen=True, tag="device.faulted"):
    """The emulated device refused a launch as CUDA would, or a rule was broken."""

    code: str
    detail: str
    level: ClassVar[str] = "error"


# --- steps 11-13: the token reader and the stream ----------------------------------------------------------------


class TokensRead(Event, frozen=True, tag="tokens.read"):
    """Step 11: the token reader fetched tokens `first` to `first + count - 1` of a request by RDMA READ."""

    request: int
    first: int
    count: int
    urgent: bool = False
    """True while the slot was in the urgent set (no token seen before)."""


class TokensDetokenised(Event, frozen=True, tag="tokens.detokenised"):
    """Step 12: ids are text; `text` is empty while an incomplete UTF-8 sequence is held back."""

    request: int
    first: int
    count: int
    text: str


class TokensStreamed(Event, frozen=True, tag="tokens.streamed"):
    """Step 13: the text went to the client as server-sent events."""

    request: int
    first: int
    count: int


class ReaderMeasured(Event, frozen=True, tag="reader.measured"):
    """What the front end's polling did since the last such event."""

    polls: int
    interval: Nanoseconds
    """Present polling interval."""
    metadata_bytes: int
    token_reads: int
    tracker_refreshes: int
    level: ClassVar[str] = "debug"


class VerbFailed(Event, frozen=True, tag="verb.failed"):
    """A work request ended with an error completion."""

    verb: str
    peer: str
    status: str
    level: ClassVar[str] = "error"


AnyEvent: TypeAlias = Union[  # noqa: UP007  # msgspec wants one flat tagged union
    RunStarted, RunFinished, StageEntered, NodeReady, NodeHeartbeat, NodeStopped, HostProvisioned, LineLogged,
    RequestArrived, RequestTokenised, SlotSought, SlotFound, PromptWritten, RequestRefused, RequestAbandoned,
    RequestServed, SlotClaimed, SlotMoved, GraphSelected, GraphLaunched, TokensSampled, TokensPublished,
    WindowRelaunched, BatchChanged, DeviceFaulted, TokensRead, TokensDetokenised, TokensStreamed, ReaderMeasured,
    VerbFailed, RequestSent, TokenReceived, RequestFinished, RequestFailed, ClockMeasured, ClockLate, LinkMeasured,
    RnicMeasured, CpuMeasured, LanesApplied, CaptureFinished, FidelityJudged, HardwareEngaged,
    VerbsMeasured, WaitMeasured, HostChanged, FaultInjected,
    TurnPlaced, PathChosen, TurnStage, TransferFinished, CollectiveFinished, ForwardFinished, EngineMeasured,
    AttentionMeasured, ReadQueueMeasured, BufferMeasured, BlockRejected, ChunkServed, NodeLost, TurnReplaced,
    PortForecast,
    AgentStarted, AgentFinished,
    HostOperation, LaunchGap, GraphMeasured, ProcessorCalibrated, NeighbourStarted, NeighbourMeasured, NeighbourEnded,
    CountersMeasured, MitigationApplied,
    WatchdogFired, WatchdogCalmed, WatchdogGaveUp, SchedulerRestarted, PrefixReused,
]  # fmt: skip
"""The whole schema as one tagged union."""

BLINK_STEPS: dict[int, type[Event]] = {
    1: RequestArrived, 2: RequestTokenised, 3: SlotSought, 4: SlotFound, 5: PromptWritten, 6: SlotClaimed,
    7: GraphSelected, 8: GraphLaunched, 9: TokensSampled, 10: TokensPublished, 11: TokensRead,
    12: TokensDetokenised, 13: TokensStreamed,
}  # fmt: skip
"""The thirteen numbered steps of Blink's architecture figure, one event each."""
