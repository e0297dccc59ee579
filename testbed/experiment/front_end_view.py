"""Latencies as the front end saw them: from a request's arrival there to its streaming, labelled so.

For runs whose clients log nothing (`looplane serve`), and for what the front network and the client add.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.metrics.latency import DEFAULT_DEFINITION, Distribution, Latencies, latencies
from testbed.metrics.requests import Exchange


def of_front_end(front: Sequence[Exchange]) -> Latencies:
    """Arrival at the front end to its streaming, as vLLM's server reckons its own."""
    found = latencies(front, DEFAULT_DEFINITION)
    parts = {
        name: msgspec.structs.replace(part, definition=f"front end: {words}")
        for name, part, words in (
            ("ttft_ms", found.ttft_ms, "first tokens streamed - request arrived"),
            ("ttst_ms", found.ttst_ms, "second tokens streamed - first"),
            ("itl_ms", found.itl_ms, "gaps between streamings, pooled"),
            ("tpot_ms", found.tpot_ms, "per request (last - first) / (tokens - 1)"),
        )
    }
    return Latencies(definition="front end", **parts)


def seen_by_front_end(found: Latencies) -> Latencies:
    """A tool's definition over the front end's events: sent is the arrival there, a chunk is a streaming."""

    def relabelled(part: Distribution) -> Distribution:
        return msgspec.structs.replace(part, definition=f"front end, {part.definition}")

    return Latencies(
        definition=found.definition,
        ttft_ms=relabelled(found.ttft_ms),
        ttst_ms=relabelled(found.ttst_ms),
        itl_ms=relabelled(found.itl_ms),
        tpot_ms=relabelled(found.tpot_ms),
    )
