"""What webhooks tell: the kinds of messages and their bodies. Pure; knows no database and no HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class HookEvent(StrEnum):
    """A moment of a run. Each comes once a run and hook."""

    QUEUED = "run.queued"
    STARTED = "run.started"
    """Nodes are up and the workload has begun. A run that ends before that has none."""
    FINISHED = "run.finished"
    """With every outcome, also cancelled and lost."""
    VERDICT = "run.verdict"
    """Only of a run that was judged (passed or failed), after run.finished; with the expectations."""
    PING = "ping"
    """A test that the owner asked for."""


OF_RUNS = (HookEvent.QUEUED, HookEvent.STARTED, HookEvent.FINISHED, HookEvent.VERDICT)
"""What a hook can ask for, in the order in which they happen."""


def body_of(event: HookEvent, at: datetime, run: dict[str, Any] | None, verdict: dict[str, Any] | None = None) -> str:
    """The JSON text that is signed and sent, the same on every attempt; `at` is when it happened."""
    told: dict[str, Any] = {"event": event.value, "at": at.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if run is not None:
        told["run"] = run
    if verdict is not None:
        told["verdict"] = verdict
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
