"""Names of the metrics of agentic serving, with their meaning: the part of a summary that `AgenticFigures` is.

The names are the paths of that struct; a test asks each of a run that has everything. Units are in the names, shares
are between 0 and 1. Formulae: docs/models/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.experiment.agentic_summary import progress_names
from testbed.experiment.isolation_figures import NAMES as ISOLATION
from testbed.experiment.nic_summary import RESOURCES
from testbed.metrics.resource_use import WINDOWS
from testbed.metrics.turn_stages import PARTS

SPREAD = {
    "n": "how many values",
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "worst": "largest value",
}
HOPS = (
    "pe1-2", "pe3-4", "pe5-7", "pe5-7-hbm", "pe8-9", "de1-2", "de3-5", "de3-5-hbm", "de-miss", "de-miss-hbm", "de6-7",
    "persist-copy", "persist-write", "pool-local", "pool-remote", "replicate",
)  # fmt: skip
"""Rows of `testbed.dualpath.read_paths.HOPS`; a test holds the two against each other."""
OPERATIONS = ("all_to_all", "dispatch", "combine", "reduce_scatter", "all_gather")
"""all_to_all is dispatch and combine together."""
CHUNKS = ("read", "write", "commit")
KINDS = ("prefill", "decode")
_SIDES = ("pe", "de")


def _spread(name: str, words: str) -> Iterator[tuple[str, str]]:
    return ((f"{name}.{statistic}", f"{meaning}: {words}") for statistic, meaning in SPREAD.items())


def _agents() -> Iterator[tuple[str, str]]:
    yield "jct.total_s", "job completion time of all agents, first start to last end; mean of the repeats"
    yield "jct.least_s", "the same, of the quickest repeat"
    yield "jct.most_s", "the same, of the slowest repeat"
    yield from _spread("jct.agent_s", "job completion time of an agent that has all its answers")
    yield "jct.agents", "agents that started"
    yield "jct.failed", "agents that gave up"
    yield "jct.running", "agents that were at work when the log ended"
    yield "jct.in_objectives", "share of ended turns with TTFT <= 4 s and TPOT <= 50 ms"
    for part in PARTS:
        yield f"ttft_split.{part}.share", f"share of {part} in the times to first token"
        yield f"ttft_split.{part}.mean_ms", f"mean time of {part} before a first token"


def _paths() -> Iterator[tuple[str, str]]:
    for path in ("prefill", "decode", "split", "none"):
        yield f"paths.turns.{path}", f"turns with read path {path}"
    yield "paths.hit_tokens", "prompt tokens whose KV was in storage"
    yield "paths.prompt_tokens", "prompt tokens of all placed turns"
    yield "paths.hit_rate", "hit tokens ÷ prompt tokens"
    yield "paths.read_bytes.prefill", "bytes read from storage by prefill nodes"
    yield "paths.read_bytes.decode", "bytes read from storage by decode nodes"
    yield "paths.decode_share", "share of the bytes read that decode nodes read"
    for hop in HOPS:
        for name, words in (("count", "transfers"), ("bytes", "bytes"), ("blocks", "blocks"),
                            ("modelled_bytes", "bytes by the hop model")):  # fmt: skip
            yield f"hops.{hop}.{name}", f"{words} of hop {hop}"
        yield from _spread(f"hops.{hop}.time_ms", f"time of a transfer of hop {hop}")
    yield "hop_model.snic_percent", "bytes over SNICs, worst port: percent apart from the hop model"
    yield "hop_model.cnic_percent", "bytes over CNICs, worst port: percent apart from the hop model"
    yield "hop_model.counted_percent", "bytes over SNICs by the kernel's counters: percent apart from the hop model"


def _nics() -> Iterator[tuple[str, str]]:
    for side in (*_SIDES, "storage"):
        yield f"snic.{side}.busy", f"share of the rate that SNICs of {side} nodes carried, mean"
        yield f"snic.{side}.busiest", f"share of the rate that the busiest SNIC of {side} nodes carried"
        yield f"snic.{side}.loaded", f"as snic.{side}.busy, until half of the agents had ended"
        yield f"snic.{side}.counted", f"as snic.{side}.busy, by the kernel's counters"
        yield f"snic.{side}.bytes", f"bytes over SNICs of {side} nodes"
    for nic in ("snic", "cnic"):
        for window in WINDOWS:
            yield f"{nic}.max_over_avg.{window}", f"most that one {nic.upper()} carried ÷ mean of all, in {window}"
            yield f"{nic}.excess.{window}", f"{nic}.max_over_avg.{window} less 1"
            yield f"{nic}.windows.{window}", f"windows of {window} in which something was carried"
        yield f"{nic}.ports", f"{nic.upper()}s of engines' nodes"
    for side, kinds in RESOURCES.items():
        for kind in kinds:
            words = f"{kind} of {side} nodes"
            yield f"resources.{side}.{kind}.busy", f"share of the rate that was used: {words}, mean"
            yield f"resources.{side}.{kind}.busiest", f"share of the rate that was used: {words}, the busiest"
            yield f"resources.{side}.{kind}.loaded", f"the busiest until half of the agents had ended: {words}"
            yield f"resources.{side}.{kind}.bytes", f"bytes over {words}"


def _engines() -> Iterator[tuple[str, str]]:
    yield "attention.max_over_avg.whole", "attention Max/Avg of a group's engines, whole run"
    for name in progress_names():
        yield f"attention.max_over_avg.{name}", f"the same in the part of the run's progress that goes {name}"
    for operation in OPERATIONS:
        yield f"collectives.{operation}.n", f"operations {operation} of 16 packets or more"
        yield f"collectives.{operation}.small", f"operations {operation} of fewer packets"
        yield f"collectives.{operation}.bytes", f"bytes of {operation}"
        yield from _spread(f"collectives.{operation}.time_us", f"time of {operation}, due until done")
    for kind in KINDS:
        yield from _spread(f"batches.{kind}.tokens", f"tokens of a {kind} batch")
        yield from _spread(f"batches.{kind}.turns", f"turns in a {kind} batch")
        yield f"batches.{kind}.cached_tokens", f"cached tokens in {kind} batches"
        yield f"batches.{kind}.computing", f"share of {kind} batches' time that was compute"
        yield f"batches.{kind}.attention_ms", f"longest attention of a {kind} batch"
        yield f"batches.{kind}.hbm_bytes", f"most KV that an engine held during a {kind} batch"
    for room in ("buffers", "hbm"):
        for side in _SIDES:
            yield f"{room}.{side}.peak_bytes", f"most that was held of {room} at {side}"
            yield f"{room}.{side}.total_bytes", f"size of one of {room} at {side}"
            yield f"{room}.{side}.waiting", f"most turns that waited for room in {room} at {side}"
    for side in _SIDES:
        for name, words in (("busy", "mean"), ("least", "least"), ("most", "most")):
            yield f"engines.{side}.{name}", f"share of time in which {side} engines computed, {words}"
        yield f"engines.{side}.tokens", f"tokens that {side} engines computed"


def _storage() -> Iterator[tuple[str, str]]:
    yield "blocks.read", "Full Blocks that came from storage"
    yield "blocks.written", "Full Blocks that went to storage"
    yield "blocks.verified", "Layer Blocks whose checksum was checked in an engine's HBM before use"
    yield "blocks.rejected", "blocks rejected by checksum, or that a replica could not give"
    yield "blocks.reached_engines", "rejected blocks that were found in an engine's HBM only; none may"
    for operation in CHUNKS:
        yield f"chunks.{operation}.n", f"chunk operations: {operation}"
        yield f"chunks.{operation}.bytes", f"bytes of chunk operations: {operation}"
        yield from _spread(f"chunks.{operation}.disk_ms", f"disk time of a chunk {operation}")
    yield "accidents.nodes_lost", "nodes that somebody found dead"
    yield "accidents.turns_replaced", "turns that went back to the scheduler when an engine was lost"
    yield "accidents.turns_given_up", "turns that failed for good when an engine was lost"


AGENTIC_METRICS: dict[str, str] = dict(
    row for rows in (_agents(), _paths(), _nics(), _engines(), ISOLATION.items(), _storage()) for row in rows
)
"""Every metric of agentic serving, with its meaning."""

ALLOWED = f"{{{','.join(dict.fromkeys(name.partition('.')[0] for name in AGENTIC_METRICS))}}}.…"
"""Their first words, folded together for people; docs/models/metrics.md has all."""
