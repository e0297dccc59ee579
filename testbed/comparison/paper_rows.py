"""Ours beside what the papers published, for the sides of a comparison: figures, range of the repeats, distance.

Which value may stand beside which is `testbed.experiment.paper`'s decision; this puts the repeats' range to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from testbed.comparison.sides import Side
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import report_facts
from testbed.experiment.paper import Beside, bundled_papers
from testbed.experiment.run_folder import RunFolder, RunFolderError
from testbed.experiment.summary import read_summary


class PaperLine(msgspec.Struct, frozen=True):
    """One figure of one side beside the paper's."""

    letter: str
    """Of the side."""
    name: str
    """The system, or the pair of systems that a ratio is of."""
    ours: float | None
    """None where our run has too few values for it."""
    low: float | None
    """The lowest repeat, where there are several."""
    high: float | None
    paper: float

    @property
    def distance(self) -> float | None:
        """Ours over the paper's, less 1."""
        return self.ours / self.paper - 1 if self.ours is not None and self.paper else None


class PaperPanel(msgspec.Struct, frozen=True):
    """One figure under one condition of the paper."""

    metric: str
    unit: str
    definition: str
    """Tool by whose definition ours is reckoned; empty for the summary's own."""
    ratio: bool
    paper: str
    """Its title."""
    condition: str
    source: str
    note: str
    lines: tuple[PaperLine, ...]


def paper_panels(sides: Sequence[tuple[str, Side, RunFolder]]) -> tuple[PaperPanel, ...]:
    """Panels in the order in which the papers have them; a run that cannot be read any more has none."""
    found: dict[tuple[str, str, str, str], PaperPanel] = {}
    for letter, side, folder in sides:
        for name, row in _rows(side, folder):
            line = PaperLine(letter, name, row.ours, *_range(side, row), row.paper)
            key = row.metric, row.definition, row.condition, row.source
            known = found.get(key)
            if known is not None and line in known.lines:
                continue
            lines = (*known.lines, line) if known else (line,)
            found[key] = PaperPanel(row.metric, row.unit, row.definition, "÷" in name, _title(row), row.condition,
                                    row.source, row.note, lines)  # fmt: skip
    return tuple(found.values())


def _rows(side: Side, folder: RunFolder) -> list[tuple[str, Beside]]:
    try:
        beside = report_facts(folder, read_summary(folder.summary_file.read_bytes())).beside
    except (RunFolderError, SpecError, OSError, ValueError, KeyError):
        return []
    name = side.variant.name
    own = [(name, row) for row in beside.get(name, ())]
    pairs = [(pair, row) for pair, rows in beside.items() for row in rows if pair.startswith(f"{name} ÷ ")]
    return own + pairs


def _title(row: Beside) -> str:
    """Of the paper that a row is of."""
    for paper in bundled_papers():
        told = [(table.condition, table.source) for table in paper.tables]
        told += [(ratio.condition, ratio.source) for ratio in paper.ratios]
        if (row.condition, row.source) in told:
            return paper.paper
    return ""


def _range(side: Side, row: Beside) -> tuple[float | None, float | None]:
    path = f"{row.definition}:{row.metric}" if row.definition else row.metric
    values = [one.figures[path] for one in side.trials() if path in one.figures]
    whole = len(values) > 1 and len(values) == side.repeats and row.unit != "times"
    return (min(values), max(values)) if whole else (None, None)
