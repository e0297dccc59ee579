"""The stages of a run on the bench, and which may follow which."""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Where a run is. The values are those of the event stage.entered."""

    PREPARING = "preparing"
    NETWORK = "network"
    NODES = "nodes"
    RUNNING = "running"
    FINALISING = "finalising"
    CLEANED = "cleaned"


FOLLOWS: dict[Stage | None, frozenset[Stage]] = {
    None: frozenset({Stage.PREPARING}),
    Stage.PREPARING: frozenset({Stage.NETWORK, Stage.FINALISING}),
    Stage.NETWORK: frozenset({Stage.NODES, Stage.FINALISING}),
    Stage.NODES: frozenset({Stage.RUNNING, Stage.FINALISING}),
    Stage.RUNNING: frozenset({Stage.FINALISING}),
    Stage.FINALISING: frozenset({Stage.CLEANED}),
    Stage.CLEANED: frozenset(),
}
"""Which stage may follow which; what is not here raises."""
