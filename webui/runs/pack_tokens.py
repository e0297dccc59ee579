"""What the page keeps of the events that come for each token or step: the same folds as static/run/latency.js and
static/run/requests.js, for these events alone. Everything else about a request the page folds from the events.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from webui.runs.pack_columns import Columns

STEP_OF = {
    "graph.selected": 7,
    "graph.launched": 8,
    "tokens.sampled": 9,
    "tokens.published": 10,
    "tokens.read": 11,
    "tokens.detokenised": 12,
    "tokens.streamed": 13,
}
"""Steps of Blink's figure that repeat for each token."""
ELIDED = frozenset(STEP_OF) - {"graph.launched"} | {"token.received", "node.heartbeat", "reader.measured"}
"""Not in the pack as events. Launches are: they are drawn."""


class TokenState:
    """Times of tokens by request, first and last time of each step, launches that are not done."""

    def __init__(self) -> None:
        self._times: list[array[int]] = []
        self._counts: list[array[int]] = []
        self._latest: dict[str, int] = {}
        self._strays = 0
        self._published: dict[int, array[int]] = {}
        self._steps: dict[int, dict[int, list[int]]] = {}
        self._open: dict[str, list[int]] = {}

    def take(self, t: int, node: str, kind: str, event: dict[str, Any]) -> None:
        """The next event, of any kind."""
        step = STEP_OF.get(kind)
        if step is not None:
            self._step(t, node, step, event)
        elif kind == "token.received":
            place = self._latest.get(event["name"])
            if place is None:
                self._strays += 1
                return
            self._times[place].append(t)
            self._counts[place].append(event.get("count", 1))
        elif kind == "request.sent":
            self._latest[event["name"]] = len(self._times)
            self._times.append(array("q"))
            self._counts.append(array("q"))

    def _step(self, t: int, node: str, step: int, event: dict[str, Any]) -> None:
        requests: list[int]
        if step >= 11:
            requests = [event["request"]]
        elif step == 7:
            requests = self._open[f"{node} {event['launch']}"] = event["requests"]
        else:
            launch = self._launch(node, event["launch"])
            requests = self._open.get(launch, []) if step == 8 else event["requests"]
            if step == 9:
                self._open.pop(launch, None)
            elif step == 10:
                self._publish(t, event)
        for request in requests:
            steps = self._steps.setdefault(request, {})
            times = steps.get(step)
            if times is None:
                steps[step] = [t, t, 1]
            else:
                times[1] = t
                times[2] += 1

    def _launch(self, node: str, launch: int) -> str:
        """The node's own, else the only one of that number: one node may choose a graph that another runs."""
        own = f"{node} {launch}"
        if own in self._open:
            return own
        others = [key for key in self._open if key.endswith(f" {launch}")]
        return others[0] if len(others) == 1 else own

    def _publish(self, t: int, event: dict[str, Any]) -> None:
        for request, count in zip(event["requests"], event["counts"], strict=False):
            published = self._published.setdefault(request, array("q"))
            if len(published) < count:
                published.extend([t] * (count - len(published)))

    def write(self, columns: Columns) -> dict[str, Any]:
        """Adds the columns; returns the head's part."""
        columns.times("received", self._times)
        whole = np.concatenate([np.frombuffer(row, np.int64) for row in self._counts if row] or [np.empty(0, np.int64)])
        if (whole != 1).any():
            columns.add("received.count", whole.astype(np.uint32))
        requests = sorted({*self._published, *self._steps})
        columns.numbers("requests", requests)
        columns.times("published", [self._published.get(request, array("q")) for request in requests])
        rows = [
            (place, step, *times)
            for place, request in enumerate(requests)
            for step, times in self._steps.get(request, {}).items()
        ]
        for name, values in zip(
            ("row", "step", "first", "last", "count"), zip(*rows, strict=True) if rows else [()] * 5, strict=True
        ):
            columns.numbers(f"steps.{name}", values)
        return {"strays": self._strays, "open": self._open}
