"""A run as one JSON document: the summary, and each request with its raw times, phases and steps.

For scripts that want the figures and the samples they were made from, without reading an event log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from testbed.experiment.summary import RunSummary
from testbed.metrics.spans import RequestSpans, request_spans
from testbed.metrics.timeline import STEP_WORDS, TimelineState
from testbed.metrics.traffic_timeline import TrafficState

FORMAT = 1
"""Raised when a reader of an older document would be misled."""


def export_json(
    summary: RunSummary, timelines: Mapping[str, TimelineState], traffic: Mapping[str, TrafficState] | None = None
) -> bytes:
    """The document; all times in true nanoseconds since the run's epoch. Trials with KV traffic have their turns and
    forward batches too; transfers are in the CSV export, and their sums in the summary.
    """
    document = {
        "format": FORMAT,
        "time_unit": "ns",
        "steps": {str(step): words for step, words in STEP_WORDS.items()},
        "summary": summary,
        "trials": {
            label: {**_trial(timeline), **_traffic((traffic or {}).get(label))} for label, timeline in timelines.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _trial(timeline: TimelineState) -> dict[str, Any]:
    received = {exchange.name: exchange for exchange in timeline.exchanges.exchanges}
    requests = []
    for row in request_spans(timeline):
        one = _request(row)
        one["client"] = received.get(row.name)
        requests.append(one)
    return {"requests": requests, "launches": timeline.launches}


def _traffic(traffic: TrafficState | None) -> dict[str, Any]:
    if traffic is None:
        return {}
    turns = {
        name: {
            "placing": traffic.paths.turns.get(name),
            "stages": [[stage.stage, stage.t, stage.node] for stage in stages],
        }
        for name, stages in traffic.stages.items()
    }
    forwards = [msgspec.structs.asdict(batch) for batch in traffic.forwards]
    return {
        "turns": turns,
        "forwards": forwards,
        "accidents": [msgspec.structs.asdict(one) for one in traffic.accidents],
    }


def _request(row: RequestSpans) -> dict[str, Any]:
    return {
        "name": row.name, "request": row.request, "ring": row.ring, "slot": row.slot, "state": row.state,
        "reason": row.reason, "start": row.start, "end": row.end, "phases": row.phases, "pauses": row.pauses,
        "published": row.token_times if row.published else (),
        "steps": {str(step): times for step, times in row.steps},
    }  # fmt: skip
