"""KV traffic as two CSV files: a row for each turn, with its path and stages, and a row for each transfer.

In the manner of `testbed.experiment.export_csv`, whose requests these turns are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from testbed.experiment.export_csv import as_ms, written
from testbed.metrics.read_paths import Placing
from testbed.metrics.traffic_timeline import TrafficState

STAGES = (
    "queued", "placed", "allocated", "reading", "ready", "prefilling", "prefilled", "landing", "decoding", "ended",
    "failed",
)  # fmt: skip
"""In their order; a turn that was placed again shows when it entered each of them last."""
TURN_COLUMNS = (
    "trial", "turn", "path", "prefill_node", "prefill_engine", "decode_node", "decode_engine", "hit_tokens",
    "prompt_tokens", "prefill_blocks", "decode_blocks", *(f"{stage}_ms" for stage in STAGES),
)  # fmt: skip
TRANSFER_COLUMNS = (
    "trial", "turn", "hop", "layer", "source", "target", "bytes", "blocks", "began_ms", "ended_ms", "crossed",
)  # fmt: skip


class TrafficFiles(NamedTuple):
    """The two files' text."""

    turns: str
    transfers: str


def export_traffic(traffic: Mapping[str, TrafficState]) -> TrafficFiles:
    """The turns and transfers of one or more trials, by label."""
    turns = [row for label, state in traffic.items() for row in _turns(label, state)]
    transfers = [row for label, state in traffic.items() for row in _transfers(label, state)]
    return TrafficFiles(written(TURN_COLUMNS, turns), written(TRANSFER_COLUMNS, transfers))


def _turns(label: str, state: TrafficState) -> Iterable[Sequence[Any]]:
    for turn in sorted({*state.stages, *state.paths.turns}):
        placing = state.paths.turns.get(turn, Placing())
        entered = {stage.stage: stage.t for stage in state.stages.get(turn, ())}
        yield [
            label, turn, placing.path, placing.prefill_node, placing.prefill_engine, placing.decode_node,
            placing.decode_engine, placing.hit_tokens, placing.prompt_tokens, placing.prefill_blocks,
            placing.decode_blocks, *(as_ms(entered.get(stage)) for stage in STAGES),
        ]  # fmt: skip


def _transfers(label: str, state: TrafficState) -> Iterable[Sequence[Any]]:
    for one in state.transfers:
        yield [
            label, one.turn, one.hop, one.layer, one.source, one.target, one.bytes, one.blocks,
            as_ms(one.began), as_ms(one.end), " ".join(one.crossed),
        ]  # fmt: skip
