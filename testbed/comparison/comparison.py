"""Two to six sides held against the first: what differs in what was asked, what came of it, and one sentence on top.

Everything in a `RunDiff` follows from the sides; the sentence is made of its rows (testbed.comparison.answer). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from testbed.comparison.answer import answer, cautions
from testbed.comparison.directions import Direction, direction_of
from testbed.comparison.readings import Cell, Change, Reading, change
from testbed.comparison.rows import HEADLINES, FigureRow, SideFacts
from testbed.comparison.settings import Difference, differences
from testbed.comparison.sides import Side
from testbed.comparison.wording import title_of, unit_of_metric

LETTERS = "ABCDEF"
MOST_SIDES = len(LETTERS)
NO_CELL = Cell(None, (), None, "nothing was measured")


class RunDiff(msgspec.Struct, frozen=True):
    """A comparison as plain data. `sides`, `values`, `cells` and `changes` go in the same order; the first side is
    what the others are held against.
    """

    sides: tuple[SideFacts, ...]
    answer: str
    """One or two sentences, made from the rows below."""
    cautions: tuple[str, ...]
    """Why figures are not to be trusted blindly; empty where nothing speaks against them."""
    about: tuple[Difference, ...]
    """What carried the runs out: clock, seed, revision, host, bench."""
    settings: tuple[Difference, ...]
    """Settings that differ, after defaults and overrides."""
    agreeing: tuple[Difference, ...]
    """Settings that do not."""
    figures: tuple[FigureRow, ...]
    """Headlines first, then the rest in the summary's order."""
    complete: bool
    """False while a run's repeats have not been read yet; spreads are then missing."""


def compared(sides: Sequence[Side], about: Sequence[dict[str, Any]] = ()) -> RunDiff:
    """`sides` held against the first. `about` adds what is known of each run outside its folder."""
    known = list(zip(sides, about or [{}] * len(sides), strict=True))
    facts = tuple(_facts(letter, side, more) for letter, (side, more) in zip(LETTERS, known, strict=False))
    told = differences([side.settings() for side in sides])
    rows = _rows(sides)
    return RunDiff(
        sides=facts,
        answer=answer(facts, rows),
        cautions=cautions(facts),
        about=tuple(differences([_carried_out(side, more) for side, more in known])),
        settings=tuple(row for row in told if row.differs),
        agreeing=tuple(row for row in told if not row.differs),
        figures=rows,
        complete=all(side.run.digest is not None or not side.run.summary for side in sides),
    )


def _rows(sides: Sequence[Side]) -> tuple[FigureRow, ...]:
    every = [side.figures() for side in sides]
    paths = dict.fromkeys([*HEADLINES, *(path for figures in every for path in figures)])
    return tuple(
        figure_row(path, [figures.get(path, NO_CELL) for figures in every])
        for path in paths
        if any(path in figures for figures in every)
    )


def figure_row(path: str, cells: Sequence[Cell]) -> FigureRow:
    """One figure of all sides, each held against the first."""
    try:
        rule = direction_of(path)
        direction, reason = rule.direction, rule.reason
    except KeyError:
        direction, reason = Direction.NEITHER, "this version does not know the figure"
    changes: list[Change | None] = [None, *(change(cells[0], cell, direction) for cell in cells[1:])]
    return FigureRow(
        metric=path,
        title=title_of(path),
        unit=unit_of_metric(path),
        direction=direction,
        reason=reason,
        headline=path in HEADLINES,
        cells=tuple(cells),
        changes=tuple(changes),
    )


def _facts(letter: str, side: Side, more: dict[str, Any]) -> SideFacts:
    verdict, reasons = side.verdict()
    summary, spec = side.run.summary, side.run.spec
    return SideFacts(
        letter=letter,
        run=side.run.run,
        part=side.part,
        system=side.variant.system,
        point=side.variant.at,
        trial=side.trial,
        repeats=side.repeats,
        clock=str(summary.get("clock") or side.run.provenance.get("clock") or ""),
        outcome=str(more.get("outcome") or summary.get("outcome") or ""),
        detail=str(more.get("detail") or summary.get("detail") or ""),
        fidelity=verdict,
        reasons=reasons,
        question=str(spec.question if spec else ""),
        title=str(spec.title if spec else ""),
        finished=bool(summary),
        fault=side.run.digest.fault if side.run.digest else "",
    )


_CARRIED = ("clock", "seed", "dilation", "byte_scale", "revision", "version")


def _carried_out(side: Side, more: dict[str, Any]) -> dict[str, Any]:
    told = {name: side.run.provenance.get(name) for name in _CARRIED}
    host = side.run.provenance.get("host")
    if isinstance(host, dict):
        told["host"] = ", ".join(str(host[name]) for name in ("machine", "kernel") if host.get(name))
    told |= {name: value for name, value in more.items() if name not in ("outcome", "detail")}
    return {name: value for name, value in told.items() if value not in (None, "")}


def headline_rows(diff: RunDiff) -> tuple[FigureRow, ...]:
    """The figures that a person looks at first."""
    return tuple(row for row in diff.figures if row.headline)


def apart(diff: RunDiff) -> tuple[FigureRow, ...]:
    """The figures in which some side is apart from the first."""
    telling = (Reading.BETTER, Reading.WORSE, Reading.DIFFERENT)
    return tuple(row for row in diff.figures if any(one is not None and one.reading in telling for one in row.changes))
