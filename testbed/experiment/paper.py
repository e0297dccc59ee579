"""What the papers published, and ours beside it where the two speak of the same thing.

A value stands beside ours only if system, model and metric are the same. Even then the load may be another, so every
row carries the paper's conditions, and ours is by the definition of the tool that the paper drove its load with.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from testbed.experiment.summary import SystemSummary
from testbed.metrics.latency import DEFINITIONS

PAPERS = Path(__file__).resolve().parents[2] / "fixtures" / "paper"
"""Where the shipped papers lie, one file each."""


class PaperColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure of a table."""

    metric: str
    """Its name in a summary, or an own name where a summary has none."""
    unit: str
    definition: str = ""
    """Row of `testbed.metrics.latency.DEFINITIONS` by which ours is reckoned; empty takes the summary's own."""


class PaperRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One system with one model."""

    model: str
    """Name of the model as in testbed.serving.models; empty where the table is of none."""
    system: str
    values: tuple[float, ...]


class PaperTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of a paper."""

    name: str
    condition: str
    """Under what the values were measured."""
    source: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""

    def __post_init__(self) -> None:
        """Refuses rows that do not fit the columns, and definitions that there are none of."""
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"{self.name}, {row.model} {row.system}: {len(row.values)} values, "
                                 f"{len(self.columns)} columns")  # fmt: skip
        for column in self.columns:
            if column.definition and column.definition not in DEFINITIONS:
                raise ValueError(f"{self.name}, {column.metric}: no definition is called {column.definition!r}")


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One paper's file."""

    paper: str
    known_from: str
    systems: dict[str, str]
    """Name in the tables → kind of system."""
    tables: tuple[PaperTable, ...]


class Beside(msgspec.Struct, frozen=True):
    """One figure of ours beside the paper's."""

    metric: str
    unit: str
    definition: str
    ours: float | None
    """None where our run has too few values for it."""
    n: int | None
    """Of ours; None where the figure is no distribution's."""
    paper: float
    condition: str
    source: str
    note: str


def read_paper(text: str) -> Paper:
    """A paper from TOML. Raises tomllib.TOMLDecodeError or msgspec.ValidationError."""
    return msgspec.convert(tomllib.loads(text), Paper)


def bundled_papers() -> tuple[Paper, ...]:
    """The papers that are shipped, by file name."""
    return tuple(read_paper(path.read_text(encoding="utf-8")) for path in sorted(PAPERS.glob("*.toml")))


def beside(paper: Paper, kind: str, model: str, summary: SystemSummary) -> tuple[Beside, ...]:
    """Every value of `paper` for this kind of system and model that our summary has a figure for."""
    return tuple(_rows(paper, kind, model, summary))


def _rows(paper: Paper, kind: str, model: str, summary: SystemSummary) -> Iterator[Beside]:
    for table in paper.tables:
        for row in table.rows:
            if paper.systems.get(row.system) != kind or row.model != model:
                continue
            for column, value in zip(table.columns, row.values, strict=True):
                found = _ours(summary, column)
                if found is not None:
                    ours, n = found
                    yield Beside(column.metric, column.unit, column.definition, ours, n, value,
                                 table.condition, table.source, table.note)  # fmt: skip


def _ours(summary: SystemSummary, column: PaperColumn) -> tuple[float | None, int | None] | None:
    """Our figure and its n, or None if a summary has no such figure."""
    head, _, statistic = column.metric.partition(".")
    if not statistic:
        return (summary.throughput_tokens_per_s, None) if head == "throughput_tokens_per_s" else None
    source = summary.definitions.get(column.definition, summary) if column.definition else summary
    distribution = getattr(source, head, None)
    if distribution is None or statistic not in distribution.__struct_fields__:
        return None
    return getattr(distribution, statistic), distribution.n
