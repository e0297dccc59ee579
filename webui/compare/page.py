"""A comparison as its page shows it: words, charts and addresses made from a `RunDiff`. Holds no rules of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from testbed.comparison.comparison import LETTERS, MOST_SIDES, RunDiff
from testbed.comparison.paper_rows import PaperPanel, paper_panels
from testbed.comparison.phrases import change_words, range_words, reading_words, setting_words, spread_words
from testbed.comparison.readings import Cell, Change, Ground, Reading
from testbed.comparison.rows import FigureRow
from testbed.comparison.settings import Difference
from testbed.comparison.sides import Variant
from testbed.comparison.wording import figure, percent, several, title_of
from testbed.experiment.run_folder import RunFolder
from webui.compare.charts import beside, curves, dots
from webui.compare.marks import key_mark
from webui.compare.selectors import Compared
from webui.runs.folder import folder_of

CURVES = (("ttft_ms", "Time to first token"), ("tpot_ms", "Time per output token"), ("itl_ms", "Gaps between tokens"))
TONES: dict[Reading, tuple[str, str]] = {
    Reading.SAME: ("idle", "idle"),
    Reading.WITHIN: ("idle", "idle"),
    Reading.BETTER: ("ok", "ok"),
    Reading.WORSE: ("warn", "warn"),
    Reading.DIFFERENT: ("plain", "info"),
    Reading.UNKNOWN: ("idle", "idle"),
}
"""Tone and icon of each reading; its words stand beside both."""
_FITTED_TO = "Blink"
"""The paper whose isolated table our host-loop and engine times are fitted to (docs/models/calibration.md)."""
_MOST_SINGLE = 20
"""Repeats that a side's list of parts shows one by one."""


def compare_address(told: Sequence[str], name: str = "compare", **more: str) -> str:
    """The address of a comparison of the sides `told`."""
    return f"{reverse(name)}?{urlencode([*(('run', one) for one in told), *more.items()])}"


def compare_page(sides: Sequence[Compared], diff: RunDiff, *, every: bool) -> dict[str, Any]:
    """What the template takes. `every`: all figures, not the headlines alone."""
    told = [one.text for one in sides]
    letters = [facts.letter for facts in diff.sides]
    # Systems of several kinds have settings of their own: a long list that says one thing.
    kinds = any(row.path == "system.kind" for row in diff.settings)
    rows = [row for row in diff.figures if every or row.headline]
    panels = paper_panels([
        (facts.letter, one.side, RunFolder(folder_of(one.run.pk))) for facts, one in zip(diff.sides, sides, strict=True)
    ])
    return {
        "diff": diff,
        "heading": heading(diff),
        "sides": [_card(place, sides, diff) for place in range(len(sides))],
        "settings": [_setting(row, letters) for row in diff.settings if row.shared or not kinds],
        "unshared": [_setting(row, letters) for row in diff.settings if kinds and not row.shared],
        "differing": len(diff.settings),
        "agreeing": [_setting(row, letters) for row in diff.agreeing],
        "about": [_setting(row, letters) for row in diff.about if row.differs],
        "total": len(diff.settings) + len(diff.agreeing),
        "figures": [_figure(row, letters) for row in rows],
        "hidden": len(diff.figures) - len(rows),
        "spread": spread_words(diff.sides),
        "curves": [panel for name, title in CURVES if (panel := _curve(name, title, sides, letters))],
        "panels": [
            {"title": panel_title(panel.metric), "panel": panel,
             "chart": beside(panel.lines, [LETTERS.index(line.letter) for line in panel.lines], panel.unit)}
            for panel in panels
        ],
        "largest": _largest(panels),
        "fitted": any(panel.paper.startswith(_FITTED_TO) for panel in panels),
        "keys": [(key_mark(place), letter) for place, letter in enumerate(letters)],
        "lanes": compare_address(told, "compare-lanes") if any(one.side.detail for one in sides) else "",
        "csv": compare_address(told, "compare-csv"),
        "json": compare_address(told, "compare-json"),
        "swap": compare_address(told[::-1]) if len(told) == 2 else "",
        "add": compare_address(told, pick="1") if len(told) < MOST_SIDES else "",
        "fewer": compare_address(told),
        "more": compare_address(told, all="1"),
        "every": every,
        "two": len(sides) == 2,
        "crumb": " against ".join(dict.fromkeys(one.run.label for one in sides)),
    }  # fmt: skip


def _largest(panels: Sequence[PaperPanel]) -> str:
    """The distance that is furthest from the paper's, in words."""
    told = [line.distance for panel in panels for line in panel.lines if line.distance is not None]
    return percent(max(told, key=abs)) if told else ""


def heading(diff: RunDiff) -> str:
    """The question, where all were asked the same; else what is held against what."""
    questions = {facts.question or facts.title for facts in diff.sides}
    if len(questions) == 1 and (said := questions.pop()):
        return said
    return " against ".join(dict.fromkeys(facts.title or facts.system or facts.run for facts in diff.sides))


def panel_title(metric: str) -> str:
    """The metric's name; one that only a paper has is written as it is."""
    return title_of(metric)


def _figure(row: FigureRow, letters: Sequence[str]) -> dict[str, Any]:
    few = any(cell.why_not for cell in row.cells)
    return {
        "row": row,
        "title": row.title,
        "cells": [_cell(cell, row, letter) for cell, letter in zip(row.cells, letters, strict=True)],
        "changes": [_change(row, change) for change in row.changes],
        "against": [
            {"letter": letter, **_change(row, change)} for letter, change in zip(letters, row.changes, strict=True)
        ][1:],
        "dots": dots(row.cells, letters, row.unit),
        "few": few,
    }


def _cell(cell: Cell, row: FigureRow, letter: str) -> dict[str, Any]:
    return {
        "letter": letter,
        "value": figure(cell.value, row.unit),
        "range": range_words(cell, row.unit),
        "grey": bool(cell.why_not),
        "why": cell.why_not,
        "n": cell.count,
    }


def _change(row: FigureRow, change: Change | None) -> dict[str, Any]:
    if change is None:
        return {"words": "", "reading": "", "tone": "", "icon": ""}
    tone, icon = TONES[change.reading]
    # Without a spread nothing is proven, so nothing is painted as if it were.
    if change.ground in (Ground.SINGLE, Ground.POOLED):
        tone, icon = "plain", "info"
    return {"words": change_words(row, change), "reading": reading_words(change), "tone": tone, "icon": icon}


def _setting(row: Difference, letters: Sequence[str]) -> dict[str, Any]:
    first = row.values[0]
    same = [value == first and type(value) is type(first) for value in row.values]
    return {
        "words": row.words,
        "path": row.path,
        "values": [
            {"letter": letter, "text": setting_words(value, row.unit), "differs": not alike}
            for letter, value, alike in zip(letters, row.values, same, strict=True)
        ],
    }


def _curve(name: str, title: str, sides: Sequence[Compared], letters: Sequence[str]) -> dict[str, Any] | None:
    found = [one.side.samples().get(name) for one in sides]
    if not any(one is not None and one.n for one in found):
        return None
    counts = " and ".join(f"{one.n:,}" if one is not None else "0" for one in found)
    return {"title": title, "counts": counts, "chart": curves(found, letters, title)}


def _card(place: int, sides: Sequence[Compared], diff: RunDiff) -> dict[str, Any]:
    one, facts = sides[place], diff.sides[place]
    told = [side.text for side in sides]
    return {
        "facts": facts,
        "run": one.run,
        "mark": key_mark(place),
        "href": reverse("run", args=[one.run.pk]) + _trial_query(one),
        "parts": _parts(one),
        "text": one.text,
        "repeats": several(facts.repeats, "repeat"),
        "without": compare_address([*told[:place], *told[place + 1 :]]) if len(told) > 2 else "",
        "first": compare_address([told[place], *told[:place], *told[place + 1 :]]) if len(told) > 2 and place else "",
    }


def _trial_query(one: Compared) -> str:
    label = one.side.trial or one.side.variant.trials[0]
    return "" if label == one.run.pk else f"?{urlencode({'trial': label})}"


def _parts(one: Compared) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """What else of the run can be on this side: groups of (address part, words, chosen)."""
    variants = one.side.run.variants
    chosen = one.side.part
    groups = [("All repeats", [
        (f"{one.run.pk}:{variant.name}", variant_words(variant), variant.name == chosen)
        for variant in variants
    ])]  # fmt: skip
    own = one.side.variant
    if 1 < len(own.trials) <= _MOST_SINGLE:
        singles = [(f"{one.run.pk}:{label}", f"repeat {number}", label == chosen)
                   for number, label in enumerate(own.trials, 1)]  # fmt: skip
        groups.append((f"One repeat of {variant_words(own)}", singles))
    return groups if len(groups) > 1 or len(variants) > 1 else []


def variant_words(variant: Variant) -> str:
    """A system and its point of the sweep, readable."""
    return f"{variant.system}, {variant.at}" if variant.at else variant.system
