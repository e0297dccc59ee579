"""What the papers published, and ours beside it where the two speak of the same thing.

A value stands beside ours only if system, model, metric and neighbours are the same; a ratio, and a table that says so,
beside any model's. Even then the load may be another, so every row carries the paper's conditions, and ours is by the
definition of the tool that the paper drove its load with.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from testbed.experiment.metric_paths import METRICS
from testbed.experiment.summary import SystemSummary
from testbed.metrics.latency import DEFINITIONS, Distribution

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


class PaperSystem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A system of the paper as one of ours."""

    kinds: tuple[str, ...]
    """Rows of `testbed.experiment.assembly.SYSTEMS` that can be it."""
    where: dict[str, Any] = {}
    """Parameters that make it this one; others may be what they are."""
    threads: tuple[int, int] = (0, 0)
    """How many threads its neighbours have, from and to; by default it is alone."""
    neighbours: tuple[str, ...] = ()
    """Kinds of its neighbours, none of another kind; empty: any."""


class PaperTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of a paper."""

    name: str
    condition: str
    """Under what the values were measured."""
    source: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""
    experiments: tuple[str, ...] = ()
    """Names of the experiments beside which it stands; empty: every one."""
    any_model: bool = False
    """Whether it stands beside other models too, as shares and balances may."""

    def __post_init__(self) -> None:
        """Refuses rows that do not fit the columns, and definitions that there are none of."""
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"{self.name}, {row.model} {row.system}: {len(row.values)} values, "
                                 f"{len(self.columns)} columns")  # fmt: skip
        for column in self.columns:
            if column.definition and column.definition not in DEFINITIONS:
                raise ValueError(f"{self.name}, {column.metric}: no definition is called {column.definition!r}")


class PaperRatio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure of a system divided by the same figure of another one."""

    over: str
    under: str
    metric: str
    value: float
    condition: str
    source: str
    experiments: tuple[str, ...] = ()
    """As for a table."""
    model: str = ""
    """As in a row; empty where it is any model's."""


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One paper's file."""

    paper: str
    known_from: str
    systems: dict[str, str | PaperSystem]
    """Name in the tables → kind of system, with the parameters that matter."""
    tables: tuple[PaperTable, ...]
    ratios: tuple[PaperRatio, ...] = ()

    def names(self, ours: Ours) -> tuple[str, ...]:
        """What the tables call our system; several names where they tell more or less of it."""
        return tuple(name for name, told in self.systems.items() if _is(told, ours))


class Ours(msgspec.Struct, frozen=True):
    """One system of a run of ours."""

    kind: str
    model: str
    parameters: Mapping[str, Any]
    """All of them, with defaults."""
    summary: SystemSummary
    threads: int = 0
    """Of its neighbours on the host's CPU set."""
    displaced: bool = False
    """Whether the experiment has put nodes of it on other cores than its own, or protects it from its neighbours: no
    table of a paper has a figure of that."""
    neighbours: tuple[str, ...] = ()
    """Kinds of its neighbours."""


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


def beside(paper: Paper, ours: Ours, experiment: str = "") -> tuple[Beside, ...]:
    """Every value of `paper` for this system and model that our summary has a figure for."""
    return tuple(_rows(paper, ours, experiment))


def beside_ratios(paper: Paper, systems: Mapping[str, Ours], experiment: str = "") -> dict[str, tuple[Beside, ...]]:
    """The same for ratios between two of `systems` (of one point of a sweep), by the two names."""
    found: dict[str, tuple[Beside, ...]] = {}
    for ratio in paper.ratios:
        if experiment not in ratio.experiments:
            continue
        for over, one in systems.items():
            for under, other in systems.items():
                if ratio.model and not ratio.model == one.model == other.model:
                    continue
                if ratio.over in paper.names(one) and ratio.under in paper.names(other):
                    row = _ratio(ratio, one, other)
                    found[f"{over} ÷ {under}"] = (*found.get(f"{over} ÷ {under}", ()), row)
    return found


def _is(told: str | PaperSystem, ours: Ours) -> bool:
    named = PaperSystem((told,)) if isinstance(told, str) else told
    least, most = named.threads
    if ours.displaced or not least <= ours.threads <= most:
        return False
    if named.neighbours and not set(ours.neighbours) <= set(named.neighbours):
        return False
    return ours.kind in named.kinds and all(ours.parameters.get(name) == value for name, value in named.where.items())


def _rows(paper: Paper, ours: Ours, experiment: str) -> Iterator[Beside]:
    names = paper.names(ours)
    for table in paper.tables:
        if table.experiments and experiment not in table.experiments:
            continue
        for row in table.rows:
            if row.system not in names or not (table.any_model or row.model == ours.model):
                continue
            for column, value in zip(table.columns, row.values, strict=True):
                found = _ours(ours.summary, column)
                if found is not None:
                    figure, n = found
                    yield Beside(column.metric, column.unit, column.definition, figure, n, value,
                                 table.condition, table.source, table.note)  # fmt: skip


def _ratio(ratio: PaperRatio, one: Ours, other: Ours) -> Beside:
    over, under = _place(one.summary, ratio.metric), _place(other.summary, ratio.metric)
    ours = over / under if over is not None and under else None
    return Beside(ratio.metric, "times", "", ours, None, ratio.value, ratio.condition, ratio.source, "")


def _ours(summary: SystemSummary, column: PaperColumn) -> tuple[float | None, int | None] | None:
    """Our figure and its n, or None if a summary has no such figure."""
    if column.metric not in METRICS:
        return None
    head, _, statistic = column.metric.partition(".")
    distribution = getattr(summary.definitions.get(column.definition, summary), head, None)
    if isinstance(distribution, Distribution):
        return getattr(distribution, statistic), distribution.n
    figure = _place(summary, column.metric)
    # A part that the run has not at all is no figure; a latency of too few requests is one, and says so.
    return None if figure is None else (figure, None)


def _place(summary: SystemSummary, metric: str) -> float | None:
    """The figure at a metric's path."""
    place: Any = summary
    for part in metric.split("."):
        place = place.get(part) if isinstance(place, Mapping) else getattr(place, part, None)
    return None if place is None else float(place)
