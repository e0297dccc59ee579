"""Letters of engines that step together: rounds of a group (`testbed.dualpath.rounds`), and parts of its collectives.

A part of `testbed.dualpath.letters`.
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.letter import Letter
from testbed.units import Nanoseconds


class EngineLoad(msgspec.Struct, frozen=True, array_like=True):
    """What one engine brings into a round."""

    attention: Nanoseconds = 0
    """Modelled attention time of its batch, all layers; prefill only."""
    tokens: int = 0
    """Computed in this round."""
    context: int = 0
    """Tokens of KV; decode only."""


class RoundAsk(Letter, frozen=True, tag="round_ask"):
    """To the head of a group: an engine of `node` has work."""

    node: str


class RoundOpen(Letter, frozen=True, tag="round_open"):
    """From the head: form your batches."""

    number: int


class RoundReady(Letter, frozen=True, tag="round_ready"):
    """To the head: all engines of `node` have."""

    node: str
    number: int
    loads: tuple[EngineLoad, ...]


class RoundStart(Letter, frozen=True, tag="round_start"):
    """From the head: all engines of the group have."""

    number: int
    loads: tuple[EngineLoad, ...]
    """Node by node."""


class RoundDone(Letter, frozen=True, tag="round_done"):
    """To the head: all engines of `node` are through all layers."""

    node: str
    number: int
    more: bool
    """Whether one of them has work for another round."""


class PartArrived(Letter, frozen=True, tag="part"):
    """From one engine of a group to another: my part of this collective is in your memory, before this letter."""

    sequence: int
    member: int
    """The sender's place in the group."""
    bytes: int
