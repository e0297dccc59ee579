"""KV traffic in a Chrome trace: turns by stage, resources with their transfers, engines with their batches, memory.

Slices of one thread must not overlap, so a transfer stands on a resource from the end of the one before it, as those
that queue for a port are carried one after another. Processes are numbered after those of
`testbed.experiment.export_perfetto`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from testbed.experiment.chrome_trace import TraceEvent, as_us, counter, process, slice_event, thread
from testbed.metrics.traffic_timeline import TrafficState
from testbed.units import Nanoseconds

TURNS, RESOURCES, ENGINES, MEMORY = range(6, 10)
PROCESSES: Mapping[int, str] = {
    TURNS: "stages of turns",
    RESOURCES: "ports and memories",
    ENGINES: "engines",
    MEMORY: "buffers, HBM and read queues",
}
MOST_TRANSFERS = 20_000
"""Of one trial; a viewer would not draw more, and `transfers.csv` has them all."""


def traffic_events(traffic: TrafficState, base: int, prefix: str) -> Iterator[TraceEvent]:
    """The events of one trial; none where it has no KV traffic."""
    if not (traffic.stages or traffic.transfers or traffic.forwards or traffic.held):
        return
    for pid, words in PROCESSES.items():
        yield from process(base + pid, prefix + words)
    yield from _turns(traffic, base + TURNS)
    yield from _resources(traffic, base + RESOURCES)
    yield from _engines(traffic, base + ENGINES)
    yield from _memory(traffic, base + MEMORY)


def _turns(traffic: TrafficState, pid: int) -> Iterator[TraceEvent]:
    for tid, (turn, stages) in enumerate(sorted(traffic.stages.items()), 1):
        yield from thread(pid, tid, turn)
        placing = traffic.paths.turns.get(turn)
        told = {} if placing is None else {
            "path": placing.path, "hit_tokens": placing.hit_tokens, "prompt_tokens": placing.prompt_tokens,
            "prefill": f"{placing.prefill_node}.{placing.prefill_engine}",
            "decode": f"{placing.decode_node}.{placing.decode_engine}",
        }  # fmt: skip
        for now, after in pairwise(stages):
            yield slice_event(pid, tid, now.stage, now.t, after.t, {"node": now.node, "detail": now.detail, **told})


def _resources(traffic: TrafficState, pid: int) -> Iterator[TraceEvent]:
    lanes: dict[str, int] = {}
    free: dict[str, Nanoseconds] = {}
    for transfer in traffic.transfers[:MOST_TRANSFERS]:
        args = {
            "turn": transfer.turn, "layer": transfer.layer, "bytes": transfer.bytes, "blocks": transfer.blocks,
            "from": transfer.source, "to": transfer.target, "waited_since": as_us(transfer.began),
        }  # fmt: skip
        for resource in transfer.crossed:
            if resource not in lanes:
                lanes[resource] = len(lanes) + 1
                yield from thread(pid, lanes[resource], resource)
            start = min(max(transfer.began, free.get(resource, transfer.began)), transfer.end)
            free[resource] = max(free.get(resource, transfer.end), transfer.end)
            yield slice_event(pid, lanes[resource], transfer.hop, start, transfer.end, args)
    left = len(traffic.transfers) - MOST_TRANSFERS
    if left > 0:
        yield from thread(pid, len(lanes) + 1, f"{left} more transfers are not drawn")


def _engines(traffic: TrafficState, pid: int) -> Iterator[TraceEvent]:
    lanes: dict[str, int] = {}
    free: dict[str, Nanoseconds] = {}
    for batch in traffic.forwards:
        if batch.engine not in lanes:
            lanes[batch.engine] = len(lanes) + 1
            yield from thread(pid, lanes[batch.engine], batch.engine)
        start = min(max(batch.began, free.get(batch.engine, batch.began)), batch.end)
        free[batch.engine] = max(free.get(batch.engine, batch.end), batch.end)
        args = {
            "turns": batch.turns, "tokens": batch.tokens, "cached": batch.cached, "attention_ns": batch.attention,
            "computed_ns": batch.computed, "hbm_bytes": batch.hbm_bytes,
        }  # fmt: skip
        yield slice_event(pid, lanes[batch.engine], batch.kind, start, batch.end, args)


def _memory(traffic: TrafficState, pid: int) -> Iterator[TraceEvent]:
    for held in traffic.held:
        yield counter(pid, f"{held.place} bytes", held.t, {"held": held.held})
        yield counter(pid, f"{held.place} waiting", held.t, {"turns": held.waiting})
    for queue in traffic.queues:
        yield counter(pid, f"{queue.node} read queue", queue.t, {"tokens": queue.tokens})
