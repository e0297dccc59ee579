"""Which queue pair carries a verb: one table for every wire, simulated, soft or real.

A verb names a peer (`de0`, or `de0.cnic3` for one port of it), a service level and, if it matters, the port that it
leaves by. The first queue pair of the plan that fits carries it; a service level without one of its own takes the
first pair to the peer. Knows no wire.
"""
# ruff: noqa: D102  # the fields of this protocol are explained in testbed.experiment.plan

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from testbed.machine import Verb


class RoutedPair(Protocol):
    """`QueuePairPlan`, as far as a route reads it."""

    @property
    def peer(self) -> str: ...
    @property
    def peer_interface(self) -> str: ...
    @property
    def interface(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def service_level(self) -> int: ...


class Routes:
    """The queue pairs of one node, by what verbs say."""

    def __init__(self, pairs: Iterable[RoutedPair]) -> None:
        self._numbers: dict[tuple[str, str, int | None], int] = {}
        self.peers: list[str] = []
        """Names of the nodes at the other ends, in the plan's order."""
        for pair in pairs:
            if pair.peer not in self.peers:
                self.peers.append(pair.peer)
            names = (pair.peer, f"{pair.peer}.{pair.peer_interface}") if pair.peer_interface else (pair.peer,)
            for name in names:
                for interface in (pair.interface, ""):
                    for level in (pair.service_level, None):
                        self._numbers.setdefault((name, interface, level), pair.number)

    def number(self, verb: Verb) -> int | None:
        """Own number of the queue pair that carries `verb`; None where there is none."""
        found = self._numbers.get((verb.peer, verb.interface, verb.service_level))
        return found if found is not None else self._numbers.get((verb.peer, verb.interface, None))

    def number_to(self, peer: str, service_level: int | None) -> int | None:
        """Own number of the first queue pair to `peer` of just this service level; None means any level."""
        return self._numbers.get((peer, "", service_level))
