"""Events of the client's side of a request: what latency is measured from.

Members of the one schema (`testbed.events.schema`). `name` is what the client called the request (x-request-id); the
server's number for it is tied to that name by `request.arrived`. Times are true.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event
from testbed.units import Nanoseconds


class RequestSent(Event, frozen=True, tag="request.sent"):
    """The client sent the request; `lag` is how long after its scheduled arrival (open loop, serving.md §3)."""

    name: str
    scheduled: Nanoseconds
    lag: Nanoseconds
    prompt_tokens: int
    max_tokens: int


class TokenReceived(Event, frozen=True, tag="token.received"):
    """A chunk with `count` tokens reached the client; `index` is the place of its first token, from 0."""

    name: str
    index: int
    count: int = 1


class RequestFinished(Event, frozen=True, tag="request.finished"):
    """The client has the whole answer. `tokens` is the server's usage figure."""

    name: str
    tokens: int
    reason: str


class RequestFailed(Event, frozen=True, tag="request.failed"):
    """The request ended without a whole answer; it counts in no latency."""

    name: str
    error: str
    level: ClassVar[str] = "warning"
