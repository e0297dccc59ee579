"""What a port carried of collectives and of KV, beside what the exact arbiter foretold of it.

One node logs the forecast of its own port (port.forecast); what ends at that node is held against it. KV counts from
its first transfer to its last; where collectives keep the port busy, from one of them to the next, since before the
first and after the last of them nothing holds KV back.
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import CollectiveFinished, PortForecast, TransferFinished
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied
from testbed.units import Nanoseconds

HEADERS = 58
"""Bytes of a full packet's frame besides its payload (Ethernet, IPv4, UDP, BTH, ICRC), as the kernel's queues count."""


class Pushed(msgspec.Struct):
    """KV that has come to the port."""

    transfers: int = 0
    bytes: int = 0
    first_began: Nanoseconds = 0
    first_end: Nanoseconds = 0
    first_bytes: int = 0
    last_end: Nanoseconds = 0


class IsolationState(msgspec.Struct):
    """Also the result."""

    node: str = ""
    """Whose port it is; empty without a forecast."""
    forecast: PortForecast | None = None
    times: Tally = msgspec.field(default_factory=Tally)
    """Of collectives at that node, due until done."""
    others: dict[str, int] = {}
    """True bytes that each other node has sent in collectives."""
    collectives: int = 0
    """Ended at the node."""
    kv: Pushed = msgspec.field(default_factory=Pushed)
    """What counts."""
    open: Pushed = msgspec.field(default_factory=Pushed)
    """Beside saturating collectives: what has come since the last of them ended; counts if another one ends."""


class IsolationFold:
    """Gathers port.forecast, and what ends at its node."""

    state = IsolationState
    takes: frozenset[type[Event]] = frozenset({PortForecast, CollectiveFinished, TransferFinished})

    def start(self) -> IsolationState:
        """No forecast."""
        return IsolationState()

    def step(self, state: IsolationState, record: Record) -> IsolationState:
        """Takes one event; before the forecast nothing counts."""
        match record.event:
            case PortForecast():
                state.node, state.forecast = record.node, record.event
            case CollectiveFinished() if state.forecast is not None:
                _collective(state, state.forecast, record.node, record.event)
            case TransferFinished(target=target) if state.forecast is not None and target.startswith(f"{state.node}."):
                _pushed(state, state.forecast, record)
        return state

    def result(self, state: IsolationState) -> IsolationState:
        """A copy."""
        return msgspec.structs.replace(
            state,
            times=copied(state.times),
            others=dict(state.others),
            kv=msgspec.structs.replace(state.kv),
            open=msgspec.structs.replace(state.open),
        )


def _collective(state: IsolationState, forecast: PortForecast, node: str, event: CollectiveFinished) -> None:
    if node != state.node:
        state.others[node] = state.others.get(node, 0) + event.bytes
        return
    add(state.times, event.duration)
    state.collectives += 1
    if forecast.saturating:
        if state.collectives > 1:
            state.kv = _together(state.kv, state.open)
        state.open = Pushed()


def _pushed(state: IsolationState, forecast: PortForecast, record: Record) -> None:
    event = record.event
    assert isinstance(event, TransferFinished)
    one = Pushed(1, event.bytes, event.began, record.t, event.bytes, record.t)
    if forecast.saturating:
        state.open = _together(state.open, one)
    else:
        state.kv = _together(state.kv, one)


def _together(before: Pushed, after: Pushed) -> Pushed:
    if not before.transfers or not after.transfers:
        return msgspec.structs.replace(before if before.transfers else after)
    return msgspec.structs.replace(
        before,
        transfers=before.transfers + after.transfers,
        bytes=before.bytes + after.bytes,
        last_end=after.last_end,
    )


def kept(state: IsolationState) -> float | None:
    """KV ÷ what collectives have left of the port, while KV was pushed; in bytes of frames."""
    forecast, kv = state.forecast, state.kv
    if forecast is None or forecast.saturating or not kv.transfers or kv.last_end <= kv.first_began:
        return None
    # All members send alike, each of the others the same part to this port.
    collectives = sum(state.others.values()) / len(state.others) if state.others else 0.0
    capacity = forecast.rate_bits_per_s / 8 * (kv.last_end - kv.first_began) / 1e9
    left = capacity - _on_the_wire(forecast, collectives)
    return _on_the_wire(forecast, kv.bytes) / left if left > 0 else None


def floor(state: IsolationState) -> float | None:
    """Share of the port that KV had beside saturating collectives; None for fewer than two transfers."""
    forecast, kv = state.forecast, state.kv
    if forecast is None or not forecast.saturating or kv.transfers < 2 or kv.last_end <= kv.first_end:
        return None
    # From the end of the first to the end of the last: the first one's bytes are not of that time.
    carried = _on_the_wire(forecast, kv.bytes - kv.first_bytes) * 8
    return carried / (forecast.rate_bits_per_s * (kv.last_end - kv.first_end) / 1e9)


def low_packets(state: IsolationState) -> int:
    """Full packets of KV that `floor` rests on."""
    if state.forecast is None:
        return 0
    return state.kv.bytes // max(1, state.forecast.frame_bytes - HEADERS)


def _on_the_wire(forecast: PortForecast, payload: float) -> float:
    return payload * forecast.frame_bytes / max(1, forecast.frame_bytes - HEADERS)
