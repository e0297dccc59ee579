"""A sweep as its page shows it: charts, their table twin and addresses, made from a `Sweep`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from testbed.comparison.phrases import range_words
from testbed.comparison.rows import HEADLINES
from testbed.comparison.series import Panel, Point, Sweep
from testbed.comparison.wording import figure, title_of, unit_of_metric
from webui.compare.marks import key_mark
from webui.compare.page import compare_address
from webui.compare.sweep_chart import axis_title, sweep_chart
from webui.runs.models import Run

MOST_PANELS = 12
MOST_COMPARED = 6


def sweep_page(run: Run, sweep: Sweep, *, complete: bool) -> dict[str, Any]:
    """What the template takes."""
    systems = list(dict.fromkeys(line.system for panel in sweep.panels for line in panel.lines))
    places = {name: number for number, name in enumerate(systems)}
    unit = unit_of_metric(sweep.metric)
    addresses = {
        point.variant: _address(run, point) for panel in sweep.panels for line in panel.lines for point in line.points
    }
    query = urlencode({"run": run.pk, "x": sweep.axis.path, "y": sweep.metric})
    return {
        "section": "compare",
        "run": run,
        "sweep": sweep,
        "complete": complete,
        "title": title_of(sweep.metric),
        "axis": axis_title(sweep.axis),
        "keys": [(key_mark(places[name]), name) for name in systems],
        "metrics": [
            (words, [(path, title_of(path)) for path in sweep.metrics if (path in HEADLINES) is first])
            for words, first in (("Headlines", True), ("All other figures", False))
        ],
        "limits": [(limit.words, _bound(limit.low, limit.high, unit)) for limit in sweep.limits],
        "panels": [
            {"words": panel.words, "chart": sweep_chart(sweep, panel, addresses, places),
             "systems": [line.system for line in panel.lines], "rows": _rows(run, sweep, panel, addresses, unit)}
            for panel in sweep.panels[:MOST_PANELS]
        ],
        "left_out": max(0, len(sweep.panels) - MOST_PANELS),
        "csv": f"{reverse('compare-sweep-csv')}?{query}",
        "json": f"{reverse('compare-sweep-json')}?{query}",
    }  # fmt: skip


def _rows(run: Run, sweep: Sweep, panel: Panel, addresses: dict[str, str], unit: str) -> list[dict[str, Any]]:
    """The table beside a chart: a row for each place of the axis."""
    rows = []
    for place, value in enumerate(sweep.axis.values):
        cells, told = [], []
        for line in panel.lines:
            point = next((point for point in line.points if point.place == place), None)
            cells.append(None if point is None else _cell(point, addresses, unit))
            if point is not None:
                told.append(f"{run.pk}:{point.variant}")
        rows.append({
            "x": f"{value} {sweep.axis.unit}".rstrip(),
            "cells": cells,
            "compare": compare_address(told[:MOST_COMPARED]) if len(told) > 1 else "",
        })  # fmt: skip
    return rows


def _cell(point: Point, addresses: dict[str, str], unit: str) -> dict[str, Any]:
    cell = point.cell
    return {
        "value": figure(cell.value, unit),
        "range": range_words(cell, unit),
        "why": cell.why_not,
        "href": addresses[point.variant],
        "doubt": point.verdict if point.verdict in ("degraded", "invalid") else "",
    }


def _address(run: Run, point: Point) -> str:
    label = point.trials[0]
    return reverse("run", args=[run.pk]) + ("" if label == run.pk else f"?{urlencode({'trial': label})}")


def _bound(low: float | None, high: float | None, unit: str) -> str:
    if low is not None and low == high:
        return f"exactly {figure(low, unit)}"
    said = [f"at least {figure(low, unit)}"] if low is not None else []
    return " and ".join([*said, *([f"at most {figure(high, unit)}"] if high is not None else [])])
