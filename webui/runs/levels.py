"""Levels of events, for the page and for searches of the log: one table and the four cases that it cannot hold.

static/run/journal.js has the same cases; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from testbed.events.schema import AnyEvent

ORDER = ("debug", "info", "warning", "error")
MANY = frozenset(
    [
        "slot.sought",
        "slot.found",
        "slot.claimed",
        "slot.moved",
        "prompt.written",
        "request.tokenised",
        "graph.selected",
        "graph.launched",
        "tokens.sampled",
        "tokens.published",
        "tokens.read",
        "tokens.detokenised",
        "tokens.streamed",
        "token.received",
        "batch.changed",
        "window.relaunched",
        "request.arrived",
        "request.served",
        "turn.stage",
        "turn.placed",
        "path.chosen",
        "prefix.reused",
    ]
)
"""Information that comes thousands at a time: shown where everything is."""
LEVELS: dict[str, str] = {
    tag: level
    for event in get_args(AnyEvent)
    if (level := "debug" if (tag := str(event.__struct_config__.tag)) in MANY else event.level) != "info"
}
"""Level of each kind of event that is not simply information."""


def level_of(event: Mapping[str, Any]) -> str:
    """The level at which a line of the log is shown."""
    kind = event.get("type")
    if kind == "line.logged":
        return severity if (severity := event.get("severity")) in ORDER else "info"
    if kind == "node.stopped" and event.get("code") != 0:
        return "error"
    if kind == "run.finished" and event.get("outcome") == "errored":
        return "error"
    if kind == "fidelity.judged" and event.get("verdict") != "faithful":
        return "warning"
    return LEVELS.get(str(kind), "info")
