"""What a finished run's summary has beyond latencies, as tables for its page, in the words of the report.

Knows no system by name. A part that a run has nothing of is left out, and a summary of another version gives the parts
that can still be read. Reads nothing itself: whoever calls brings the summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from testbed.experiment.energy_figures import EnergyFigures, energy_words
from testbed.experiment.host_figures import HostFigures, MitigationFigures, NeighbourFigures, host_lines
from testbed.experiment.prefix_figures import PrefixFigures, prefix_lines
from testbed.experiment.recovery_figures import RecoveryFigures, recovery_lines
from testbed.experiment.report import number
from testbed.experiment.report_agentic import LEGEND, AgenticTables, agentic_tables, decimal, percent
from testbed.experiment.summary import SystemSummary
from testbed.metrics.latency import Latencies
from testbed.metrics.shares import LaneShare

Summary = Mapping[str, Any]
_T = TypeVar("_T")


class Column(NamedTuple):
    """Head of a column."""

    name: str
    is_number: bool = False


class Cell(NamedTuple):
    """What stands in a row."""

    text: str
    is_number: bool = False


class Part(NamedTuple):
    """One table."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


class _Around(msgspec.Struct, frozen=True):
    """The part of a system's summary that is about what stood around it."""

    host: HostFigures | None = None
    neighbours: dict[str, NeighbourFigures] = {}
    mitigations: dict[str, MitigationFigures] = {}
    recovery: RecoveryFigures | None = None
    prefix_cache: PrefixFigures | None = None
    energy: EnergyFigures | None = None


class _Tools(msgspec.Struct, frozen=True):
    definitions: dict[str, Latencies] = {}
    front_end: Latencies | None = None


def evidence_of(summary: Summary) -> list[Part]:
    """Every table that `summary` fills."""
    return [
        part
        for part in (
            _expectations(summary),
            _surroundings(summary),
            *_agentic(summary),
            _lane_shares(summary),
            _definitions(summary),
        )
        if part.rows
    ]


def _part(title: str, columns: str, rows: Iterator[tuple[str, ...]], note: str = "") -> Part:
    """`columns` are names between bars; one that starts with # holds figures."""
    heads = tuple(Column(name.lstrip("#"), name.startswith("#")) for name in columns.split("|"))
    cells = tuple(tuple(Cell(text, head.is_number) for text, head in zip(row, heads, strict=True)) for row in rows)
    return Part(title, note, heads, cells)


def systems_in(summary: Summary) -> Iterator[tuple[str, Any]]:
    """Name and figures of each system, in the summary's order."""
    systems = summary.get("systems")
    yield from systems.items() if isinstance(systems, Mapping) else ()


def _read(told: Any, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError:  # of another version
        return None


# --- all expectations -----------------------------------------------------------------------------------------------


def _expectations(summary: Summary) -> Part:
    return _part("Expectations", "Verdict|Expected|Point|#Measured", _expectation_rows(summary))


def _expectation_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    rows = summary.get("expectations")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, Mapping):
            continue
        measured = row.get("measured")
        words = f"{measured:.6g}" if isinstance(measured, int | float) else str(measured or row.get("reason", ""))
        held = "held" if row.get("held") else "broken"
        yield held, str(row.get("text", "")), str(row.get("point", "")), words


# --- host, neighbours, recovery, energy -----------------------------------------------------------------------------


def _surroundings(summary: Summary) -> Part:
    return _part("Host, neighbours, energy, recovery", "System|What|Figures", _surrounding_rows(summary))


def _surrounding_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    for name, told in systems_in(summary):
        around = _read(told, _Around)
        if around is None:
            continue
        lines = (*host_lines(around.host, around.neighbours, around.mitigations), *recovery_lines(around.recovery),
                 *prefix_lines(around.prefix_cache))  # fmt: skip
        if around.energy is not None:
            lines += (("energy", energy_words(around.energy)),)
        yield from ((name, head, words) for head, words in lines)


# --- agents and KV traffic ------------------------------------------------------------------------------------------


def _agentic(summary: Summary) -> Iterator[Part]:
    told = [(name, tables) for name, figures in systems_in(summary) if (tables := _tables(figures)) is not None]

    def rows(of: Callable[[AgenticTables], Iterator[tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
        return ((name, *row) for name, tables in told for row in of(tables))

    yield _part("Agents and KV traffic", "System|What|Figures", rows(lambda tables: iter(tables.facts)))
    use = "System|Fabric|Ports|#Mean|#Busiest|#Loaded|#Counted|#GB"
    yield _part("Share of the true rate", use, rows(_use_rows), LEGEND)
    hops = "System|Hop|What|#Transfers|#Blocks|#GB|#Model GB|#Apart|#p50 ms|#p99 ms"
    yield _part("Hops of the data path", hops, rows(_hop_rows))


def _tables(figures: Any) -> AgenticTables | None:
    system = _read(figures, SystemSummary)
    return None if system is None else agentic_tables(system)


def _use_rows(tables: AgenticTables) -> Iterator[tuple[str, ...]]:
    for row in tables.use:
        shares = (percent(share) for share in (row.busy, row.busiest, row.loaded, row.counted))
        yield (row.fabric, row.name, *shares, decimal(row.gbytes))


def _hop_rows(tables: AgenticTables) -> Iterator[tuple[str, ...]]:
    for hop in tables.hops:
        apart = "" if hop.apart_percent is None else f"{hop.apart_percent:+.1f} %"
        times = (decimal(hop.time_ms.p50), decimal(hop.time_ms.p99))
        counts = (f"{hop.transfers:,}", f"{hop.blocks:,}", decimal(hop.gbytes), decimal(hop.modelled))
        yield (hop.hop, hop.what, *counts, apart, *times)


# --- ports and definitions ------------------------------------------------------------------------------------------


def _lane_shares(summary: Summary) -> Part:
    columns = "Trial|Port|Lane|#GB|#Packets|#Dropped|#Share|#Mean Gbit/s|#Peak Gbit/s|#Setting Gbit/s"
    return _part("What ports and lanes carried", columns, _share_rows(summary), "as the kernel counted, true units")


def _share_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    shares = summary.get("shares")
    for trial, told in shares.items() if isinstance(shares, Mapping) else ():
        for one in _read(told, tuple[LaneShare, ...]) or ():
            if not (one.bytes or one.drops):
                continue
            lane = "all" if one.lane < 0 else f"VL{one.lane}"
            rates = (one.mean_bits_per_s, one.peak_bits_per_s, one.setting_bits_per_s)
            counts = (decimal(one.bytes / 1e9), f"{one.packets:,}", f"{one.drops:,}", percent(one.share))
            yield (str(trial), one.port, lane, *counts, *(number(rate / 1e9) for rate in rates))


def _definitions(summary: Summary) -> Part:
    columns = "System|Tool|#TTFT p50|#p99|#ITL p50|#p99|#TPOT p50|#p99"
    note = "milliseconds; the same requests, each tool's own definition"
    return _part("By each tool's definitions", columns, _definition_rows(summary), note)


def _definition_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    for name, told in systems_in(summary):
        tools = _read(told, _Tools)
        if tools is None:
            continue
        seen = dict(tools.definitions)
        if tools.front_end is not None:
            seen["front end"] = tools.front_end
        for tool, found in seen.items():
            three = (found.ttft_ms, found.itl_ms, found.tpot_ms)
            if not any(one.n for one in three):
                continue
            yield (name, tool, *(number(value) for one in three for value in (one.p50, one.p99)))
