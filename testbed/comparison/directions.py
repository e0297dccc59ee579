"""Which way is better, metric by metric, and why. Where nobody can say, the table says so and readings stay neutral.

The first row whose pattern fits a metric's path counts. A test asks every metric of `metric_paths.METRICS` for its
row. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple


class Direction(StrEnum):
    """Which way a figure is better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"
    """More is neither better nor worse by itself."""


class Row(NamedTuple):
    """One rule."""

    pattern: str
    """As the shell matches names; a star stands for dots too."""
    direction: Direction
    reason: str


_LOW, _HIGH, _NONE = Direction.LOWER, Direction.HIGHER, Direction.NEITHER

DIRECTIONS: tuple[Row, ...] = (
    Row("*.n", _NONE, "how many values there are, not how good they are"),
    Row("ttft_ms.*", _LOW, "somebody waits for it"),
    Row("ttst_ms.*", _LOW, "somebody waits for it"),
    Row("itl_ms.*", _LOW, "somebody waits for it"),
    Row("tpot_ms.*", _LOW, "somebody waits for it"),
    Row("submit_to_claim_ms.*", _LOW, "a part of the time to first token"),
    Row("publish_to_client_ms.*", _LOW, "a part of every token's time"),
    Row("requests.failed", _LOW, "somebody got no whole answer"),
    Row("requests.completed", _HIGH, "somebody got a whole answer"),
    Row("requests.sent", _NONE, "what was asked"),
    Row("throughput_tokens_per_s", _HIGH, "more work in the same time; where the load is the limit it only echoes it"),
    Row("energy.mj_per_token", _LOW, "energy for the same work"),
    Row("energy.*", _NONE, "power without the work it did says nothing"),
    Row("host.step_us.*", _LOW, "the accelerator waits for it"),
    Row("host.inflation.*", _LOW, "what neighbours cost the host's work"),
    Row("host.launch_gap_us.*", _LOW, "the accelerator stands idle"),
    Row("host.graph_ratio*", _LOW, "the accelerator takes longer for the same graph"),
    Row("host.wait_percent", _LOW, "ready and without a CPU"),
    Row("host.*", _NONE, "a mechanism's reading, not a result"),
    Row("neighbours.*.rate", _HIGH, "what the tenant got done"),
    Row("neighbours.*", _NONE, "what the tenant was given"),
    Row("recovery.restarts", _NONE, "follows from the deaths"),
    Row("recovery.outages", _NONE, "deaths on purpose are the experiment's"),
    Row("recovery.*", _LOW, "service is away, or a stream is lost"),
    Row("prefix_cache.hit_rate", _HIGH, "KV that is found is not computed again"),
    Row("prefix_cache.*", _NONE, "what was asked and kept"),
    Row("jct.failed", _LOW, "an agent gave up"),
    Row("jct.in_objectives", _HIGH, "turns within the objectives"),
    Row("jct.agents", _NONE, "what was asked"),
    Row("jct.running", _NONE, "when the log ended"),
    Row("jct.*", _LOW, "agents wait for their job's end"),
    Row("ttft_split.*.mean_ms", _LOW, "a part of the time to first token"),
    Row("ttft_split.*", _NONE, "a share of a whole: less of one part is more of another"),
    Row("paths.hit_rate", _HIGH, "KV that is found is not computed again"),
    Row("paths.*", _NONE, "what went which way"),
    Row("hops.*.time_ms.*", _LOW, "the turn waits for it"),
    Row("hops.*", _NONE, "what was carried"),
    Row("hop_model.*", _LOW, "further from what the model foretells"),
    Row("*.max_over_avg.*", _LOW, "1 is a perfect balance"),
    Row("*.excess.*", _LOW, "0 is a perfect balance"),
    Row("snic.*", _NONE, "a busy link is neither good nor bad"),
    Row("cnic.*", _NONE, "a busy link is neither good nor bad"),
    Row("resources.*", _NONE, "a busy part is neither good nor bad"),
    Row("collectives.*.time_us.*", _LOW, "every engine of the group waits for it"),
    Row("collectives.*", _NONE, "what was exchanged"),
    Row("batches.*", _NONE, "how the work was cut"),
    Row("buffers.*.waiting", _LOW, "turns waited for room"),
    Row("hbm.*.waiting", _LOW, "turns waited for room"),
    Row("buffers.*", _NONE, "what was held"),
    Row("hbm.*", _NONE, "what was held"),
    Row("engines.*", _NONE, "work that is done sooner leaves an engine idle"),
    Row("isolation.bursts_us.*", _LOW, "collectives beside KV take longer"),
    Row("isolation.*_over_forecast", _NONE, "1 is what was foretold; both ways are off"),
    Row("isolation.*forecast*", _NONE, "foretold, not measured"),
    Row("isolation.kv_kept", _HIGH, "KV gets what collectives leave"),
    Row("isolation.*", _NONE, "what the lanes leave each other is the experiment's question"),
    Row("blocks.rejected", _LOW, "a block was damaged or gone"),
    Row("blocks.reached_engines", _LOW, "none may"),
    Row("blocks.*", _NONE, "what was stored"),
    Row("chunks.*.disk_ms.*", _LOW, "the disk's time for the same chunk"),
    Row("chunks.*", _NONE, "what was asked of the disks"),
    Row("accidents.nodes_lost", _NONE, "deaths on purpose are the experiment's"),
    Row("accidents.*", _LOW, "turns were done twice or not at all"),
)  # fmt: skip


@lru_cache(maxsize=2048)
def direction_of(metric: str) -> Row:
    """The rule for a metric's path. Raises KeyError where the table has none."""
    for row in DIRECTIONS:
        if fnmatchcase(metric, row.pattern):
            return row
    raise KeyError(metric)
