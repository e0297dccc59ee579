"""What waits in front of a node's NICs: jobs in parts, by queue pair, by doorbell (`testbed.dualpath.traffic_manager`).

State only; who goes next and when is the traffic manager's.
"""

from __future__ import annotations

from collections import deque

from testbed.dualpath.local_messages import Move, Pull
from testbed.units import Nanoseconds


class Job:
    """A move or pull and how far it is."""

    __slots__ = ("began", "failure", "left", "message", "received")

    def __init__(self, message: Move | Pull) -> None:
        self.message = message
        self.left = 0
        """Parts not yet answered, or not yet given up."""
        self.began: Nanoseconds | None = None
        self.failure = ""
        self.received: dict[int, bytes] = {}


class Part:
    """Bytes `first` to `first + length` of a job: one work request."""

    __slots__ = ("first", "job", "length")

    def __init__(self, job: Job, first: int, length: int) -> None:
        self.job = job
        self.first = first
        self.length = length


class Pair:
    """What waits for and what is out on one queue pair."""

    __slots__ = ("bytes_out", "messages_out", "port", "waiting")

    def __init__(self, port: Port) -> None:
        self.port = port
        self.waiting: deque[Part] = deque()
        self.bytes_out = 0
        self.messages_out = 0


class Port:
    """One NIC port: its queue pairs that have something waiting, in turn, and its doorbell."""

    __slots__ = ("interface", "pairs", "ring_at", "submit_time", "turn")

    def __init__(self, interface: str, submit_time: Nanoseconds) -> None:
        self.interface = interface
        self.submit_time = submit_time
        self.pairs: dict[str, Pair] = {}
        self.turn: deque[Pair] = deque()
        self.ring_at: Nanoseconds | None = None
