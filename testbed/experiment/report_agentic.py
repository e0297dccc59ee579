"""What a report says of agents and KV traffic: facts in words, shares of ports and memories, the table of hops.

The same rows stand in the text and on the page (`testbed.experiment.report`, `testbed.experiment.report_page`). A
figure that was not measured is a dash. A system without KV traffic has none of this.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from testbed.dualpath.read_paths import HOPS
from testbed.experiment.agentic_figures import ModelFigures, NicFigures, ResourceUse, SideUse
from testbed.experiment.isolation_figures import isolation_words
from testbed.experiment.summary import SystemSummary
from testbed.metrics.tally import Spread

NONE = "-"
LINE = 116
"""Columns of a wrapped line."""
BOUND = 0.8
"""From this share of its rate on a resource is called the bottleneck."""
LEGEND = "busy: mean, first to last storage transfer; loaded: the busiest until half of the agents had ended"
_BAR = 20
_GBYTE = 1e9
_KINDS = {
    "snic_rx": "SNIC in",
    "snic_tx": "SNIC out",
    "cnic_read": "CNIC PCIe read",
    "cnic_write": "CNIC PCIe write",
    "wire": "CNIC wire, both ways",
    "dram": "DRAM",
    "copy_engine": "copy engine",
    "cxl": "CXL memory",
}
_SIDES = {"pe": "prefill", "de": "decode", "storage": "storage"}
_FABRICS = {"snic_rx": "storage", "snic_tx": "storage", "dram": "memory", "cxl": "memory"}


class UseRow(NamedTuple):
    """One kind of resource on one side."""

    fabric: str
    """storage, compute or memory."""
    name: str
    busy: float | None
    busiest: float | None
    loaded: float | None
    counted: float | None
    """By the kernel's counters of an emulation."""
    gbytes: float


class HopRow(NamedTuple):
    """One hop of the data path."""

    hop: str
    what: str
    transfers: int
    blocks: int
    gbytes: float
    modelled: float | None
    """Gigabytes by the hop model."""
    apart_percent: float | None
    time_ms: Spread


class AgenticTables(NamedTuple):
    """Everything about one system."""

    facts: tuple[tuple[str, str], ...]
    """Name and words."""
    use: tuple[UseRow, ...]
    hops: tuple[HopRow, ...]


def agentic_tables(system: SystemSummary) -> AgenticTables | None:
    """What there is to say of a system; None if it has neither agents nor KV traffic."""
    tables = AgenticTables(tuple(_facts(system)), tuple(_use(system)), tuple(_hop_rows(system)))
    return tables if any(tables) else None


def agentic_text(name: str, tables: AgenticTables) -> Iterator[str]:
    """The same as lines for a terminal."""
    yield f"{name}: agents and KV traffic"
    for words, told in tables.facts:
        yield from textwrap.wrap(told, LINE, initial_indent=f"  {words:<14}", subsequent_indent=" " * 18)
    if tables.use:
        heads = ("busy", "busiest", "loaded", "counted", "GB")
        yield f"  {'share of the true rate':<32}" + " " * (_BAR + 2) + "".join(f"{head:>9}" for head in heads)
    fabric = ""
    for row in tables.use:
        if row.fabric != fabric:
            fabric = row.fabric
            yield f"  {fabric}{' fabric' if fabric != 'memory' else ''}"
        shares = "".join(f"{percent(share):>9}" for share in (row.busy, row.busiest, row.loaded, row.counted))
        yield f"    {row.name:<30}{bar(row.busy):<{_BAR}}  {shares}{row.gbytes:>9,.3f}"
    if tables.use:
        yield f"    {LEGEND}"
    if tables.hops:
        columns = ("transfers", "GB", "model GB", "apart", "p50 ms", "p99 ms")
        yield f"  {'hop':<50}" + "".join(f"{column:>10}" for column in columns)
    for hop in tables.hops:
        cells = (
            f"{hop.transfers:,}", f"{hop.gbytes:,.3f}", decimal(hop.modelled),
            NONE if hop.apart_percent is None else f"{hop.apart_percent:+.1f} %",
            decimal(hop.time_ms.p50), decimal(hop.time_ms.p99),
        )  # fmt: skip
        yield f"    {hop.hop:<14}{hop.what:<34}" + "".join(f"{cell:>10}" for cell in cells)


def percent(share: float | None) -> str:
    """A share for people."""
    return NONE if share is None else f"{100 * share:.1f} %"


def decimal(value: float | None) -> str:
    """A figure of three decimals, or a dash."""
    return NONE if value is None else f"{value:,.3f}"


def bar(share: float | None) -> str:
    """A share as a bar of at most `_BAR` marks."""
    return "" if share is None else "#" * round(_BAR * min(1.0, share))


def bottleneck_words(system: SystemSummary) -> str:
    """Which modelled resource was closest to its rate, and whether that is a bottleneck."""
    shares = [
        (use.loaded, f"{_SIDES[side]} nodes' {_KINDS[kind]}")
        for side, kinds in (system.resources or {}).items()
        for kind, use in kinds.items()
        if use.loaded is not None
    ]
    if not shares:
        return ""
    share, name = max(shares)
    words = f"busiest: {name}, {percent(share)} of its rate while at least half of the agents were at work"
    if share >= BOUND:
        return f"{words}: the bottleneck"
    return f"{words}: no port or memory is the bottleneck"


def _facts(system: SystemSummary) -> Iterator[tuple[str, str]]:
    if system.jct is not None:
        yield "JCT", _jct_words(system)
    if system.paths is not None:
        yield "read paths", _path_words(system)
    if system.ttft_split is not None:
        yield "TTFT split", ", ".join(f"{part} {percent(one.share)}" for part, one in system.ttft_split.items())
    bottleneck = bottleneck_words(system)
    if bottleneck:
        yield "verdict", bottleneck
    if system.hop_model is not None:
        yield "hop model", _model_words(system.hop_model)
    for name, nics in (("SNIC balance", system.snic), ("CNIC balance", system.cnic)):
        if nics is not None and nics.ports > 1:
            yield name, _balance_words(nics)
    yield from _engine_facts(system)
    if system.isolation is not None:
        yield from isolation_words(system.isolation)
    yield from _storage_facts(system)


def _jct_words(system: SystemSummary) -> str:
    jct = system.jct
    assert jct is not None
    if jct.total_s is None:
        words = "none: some agents had not ended"
    else:
        words = f"{jct.total_s:,.3f} s"
        if jct.least_s != jct.most_s:
            words += f" ({jct.least_s:,.3f} to {jct.most_s:,.3f} s over the repeats)"
    ends = f", {jct.failed:,} gave up" if jct.failed else ""
    ends += f", {jct.running:,} still at work" if jct.running else ""
    return (
        f"{words}; {jct.agents:,} agents{ends}; an agent p50 {decimal(jct.agent_s.p50)} s, p90 "
        f"{decimal(jct.agent_s.p90)} s; {percent(jct.in_objectives)} of turns with TTFT <= 4 s and TPOT <= 50 ms"
    )


def _path_words(system: SystemSummary) -> str:
    paths = system.paths
    assert paths is not None
    turns = paths.turns
    return (
        f"turns prefill {turns.prefill:,}, decode {turns.decode:,}, split {turns.split:,}, nothing to read "
        f"{turns.none:,}; hit rate {percent(paths.hit_rate)}; decode SNICs carried {percent(paths.decode_share)} of "
        f"{(paths.read_bytes.prefill + paths.read_bytes.decode) / _GBYTE:,.3f} GB read"
    )


def _model_words(model: ModelFigures) -> str:
    def off(value: float | None) -> str:
        return NONE if value is None else f"{value:.2f} %"

    counted = f", by the kernel's counters {off(model.counted_percent)}" if model.counted_percent is not None else ""
    where = f" (worst at {model.where})" if model.where else ""
    ports = f"SNICs {off(model.snic_percent)}{counted}, CNICs {off(model.cnic_percent)}"
    return f"bytes of the worst port apart: {ports}{where}"


def _balance_words(nics: NicFigures) -> str:
    parts = (
        f"{NONE if ratio is None else f'{ratio:.3f}'} in {window} ({nics.windows[window]:,} windows)"
        for window, ratio in nics.max_over_avg.items()
    )
    return f"Max/Avg of {nics.ports} ports: {', '.join(parts)}"


def _engine_facts(system: SystemSummary) -> Iterator[tuple[str, str]]:
    for side, engines in (system.engines or {}).items():
        least, most = percent(engines.least), percent(engines.most)
        yield f"{side} engines", f"{percent(engines.busy)} of time in compute ({least} to {most})"
    if system.attention is not None:
        ratios = system.attention.max_over_avg
        first, whole = ratios["to_5_percent"], ratios["whole"]
        yield "attention", f"Max/Avg {decimal(first)} in the first 5 % of progress, {decimal(whole)} over the whole run"
    for name, one in (system.collectives or {}).items():
        p99 = NONE if one.time_us.p99 is None else f"{one.time_us.p99:,.1f}"
        p50 = NONE if one.time_us.p50 is None else f"{one.time_us.p50:,.1f}"
        yield name, f"p50 {p50}, p99 {p99} us of {one.n:,} (and {one.small:,} of fewer than 16 packets)"
    for kind, batches in (system.batches or {}).items():
        tokens = f"{batches.tokens.mean or 0:,.0f} tokens on average, most {batches.tokens.worst or 0:,.0f}"
        yield (
            f"{kind} batch",
            f"{tokens}; {percent(batches.computing)} compute; KV in HBM at most {batches.hbm_bytes / _GBYTE:,.3f} GB",
        )


def _storage_facts(system: SystemSummary) -> Iterator[tuple[str, str]]:
    if system.blocks is not None:
        blocks = system.blocks
        moved = f"{blocks.read:,} read, {blocks.written:,} written, {blocks.verified:,} Layer Blocks checked in HBM"
        yield "blocks", f"{moved}; {blocks.rejected:,} rejected, {blocks.reached_engines:,} of them in an engine"
        for reason, count in blocks.reasons.items():
            yield "", f"{count:,} {reason}"
    for operation, chunks in (system.chunks or {}).items():
        times = f"p50 {decimal(chunks.disk_ms.p50)}, p99 {decimal(chunks.disk_ms.p99)} ms"
        yield f"disk {operation}", f"{chunks.n:,} chunks, {chunks.bytes / _GBYTE:,.3f} GB; {times}"
    if system.accidents is not None and (system.accidents.nodes_lost or system.accidents.turns_given_up):
        lost = ", ".join(f"{node} (found by {by})" for node, by in system.accidents.lost.items())
        turns = f"{system.accidents.turns_replaced:,} turns placed again, {system.accidents.turns_given_up:,} given up"
        yield "accidents", f"lost {lost or 'no node'}; {turns}"


def _use(system: SystemSummary) -> Iterator[UseRow]:
    rows = []
    sides: dict[str, SideUse] = (
        {}
        if system.snic is None
        else {"pe snic_rx": system.snic.pe, "de snic_rx": system.snic.de, "storage snic_tx": system.snic.storage}
    )
    for side, kinds in (system.resources or {}).items():
        for kind, use in kinds.items():
            if use.bytes or f"{side} {kind}" in sides:
                rows.append(_use_row(side, kind, use, sides.get(f"{side} {kind}")))
    yield from sorted(rows, key=lambda row: ("storage", "compute", "memory").index(row.fabric))


def _use_row(side: str, kind: str, use: ResourceUse, snic: SideUse | None) -> UseRow:
    return UseRow(
        fabric=_FABRICS.get(kind, "compute"),
        name=f"{_SIDES[side]} {_KINDS[kind]}",
        busy=use.busy,
        busiest=use.busiest,
        loaded=use.loaded,
        counted=snic.counted if snic is not None else None,
        gbytes=use.bytes / _GBYTE,
    )


def _hop_rows(system: SystemSummary) -> Iterator[HopRow]:
    found = system.hops or {}
    for name in (*(hop for hop in HOPS if hop in found), *sorted(set(found) - set(HOPS))):
        hop = found[name]
        modelled = hop.modelled_bytes
        yield HopRow(
            hop=name,
            what=HOPS[name].what if name in HOPS else "",
            transfers=hop.count,
            blocks=hop.blocks,
            gbytes=hop.bytes / _GBYTE,
            modelled=None if modelled is None else modelled / _GBYTE,
            apart_percent=100 * (hop.bytes - modelled) / modelled if modelled else None,
            time_ms=hop.time_ms,
        )
