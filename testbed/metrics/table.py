"""The one table of folds. A fold that is not here is not tested by the snapshot law, and so is no fold of ours."""

from __future__ import annotations

from typing import Any

from testbed.metrics.agents import AgentFold
from testbed.metrics.attention import AttentionFold
from testbed.metrics.block_store import StoreFold
from testbed.metrics.collectives import CollectiveFold
from testbed.metrics.energy import EnergyFold
from testbed.metrics.fidelity import FidelityFold
from testbed.metrics.fold import Fold
from testbed.metrics.forward_batches import BatchFold
from testbed.metrics.hops import HopFold
from testbed.metrics.host_path import HostPathFold
from testbed.metrics.isolation import IsolationFold
from testbed.metrics.latency import LatencyFold
from testbed.metrics.neighbours import NeighbourFold
from testbed.metrics.outcome import StoryFold
from testbed.metrics.prefix_cache import PrefixFold
from testbed.metrics.read_paths import PathFold
from testbed.metrics.recovery import RecoveryFold
from testbed.metrics.requests import CountFold, ExchangeFold, ServedFold
from testbed.metrics.resource_use import UseFold
from testbed.metrics.ring_state import RingFold
from testbed.metrics.shares import ShareFold
from testbed.metrics.throughput import ThroughputFold
from testbed.metrics.timeline import TimelineFold
from testbed.metrics.traffic_timeline import TrafficFold
from testbed.metrics.turn_stages import StageFold

FOLDS: dict[str, Fold[Any, Any]] = {
    "story": StoryFold(),
    "exchanges": ExchangeFold(),
    "served": ServedFold(),
    "counts": CountFold(),
    "latencies": LatencyFold(),
    "throughput": ThroughputFold(),
    "shares": ShareFold(),
    "ring": RingFold(),
    "fidelity": FidelityFold(),
    "timeline": TimelineFold(),
    "hops": HopFold(),
    "agents": AgentFold(),
    "read_paths": PathFold(),
    "resources": UseFold(),
    "attention": AttentionFold(),
    "collectives": CollectiveFold(),
    "isolation": IsolationFold(),
    "store": StoreFold(),
    "stages": StageFold(),
    "batches": BatchFold(),
    "traffic": TrafficFold(),
    "energy": EnergyFold(),
    "host_path": HostPathFold(),
    "neighbours": NeighbourFold(),
    "recovery": RecoveryFold(),
    "prefixes": PrefixFold(),
}
"""By name; `testbed.metrics.fold.Folding` runs any choice of them over one stream."""
