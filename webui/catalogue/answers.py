"""The last answer to each experiment's question: which run gave it, and the one figure of it that a card draws.

The figure is the one that the experiment's own expectations speak of, a ratio's first; where they speak of none that
every system has, it is the time to the first token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db.models import Max

from webui.accounts.callers import Caller
from webui.runs.access import runs_readable
from webui.runs.models import Run
from webui.runs.states import Outcome

SHOWN = 4
_Told: TypeAlias = tuple[str, tuple[float, float, float]]
LEFT, RIGHT, ROW = 96.0, 214.0, 22.0
"""The axis of the drawing, in its own units, and the height of a system's row."""
_METRIC = re.compile(r"systems\.(?:[a-z0-9-]+|\"[^\"]+\")\.([a-z_.0-9]+)")
_NUMBERED = re.compile(r"([^0-9]*)([0-9.]*)")
_NO_FIGURE = ("requests.", "blocks.", "accidents.", "jct.failed", "recovery.", "neighbours.", "mitigations")
"""What counts correctness and is the same for all systems when all is well."""
_WORDS = {
    "ttft_ms": "time to the first token", "ttst_ms": "time to the second token", "itl_ms": "time between tokens",
    "tpot_ms": "time per token", "jct": "job completion time", "throughput_tokens_per_s": "throughput",
    "energy.mj_per_token": "energy per token", "host.graph_ratio": "host's part of a step",
}  # fmt: skip
_UNITS = (("_ms", "ms"), ("_tokens_per_s", "tok/s"), ("_per_s", "/s"), ("_us", "µs"), ("_s", "s"), ("_percent", "%"),
          ("_watts", "W"), ("mj_per_token", "mJ"))  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One system."""

    name: str
    y: float
    """Of its line in the drawing."""
    x: float
    """Of its figure; those of the ends of its spread follow."""
    x0: float
    x1: float
    place: int
    words: str

    @property
    def text_y(self) -> float:
        """Base line of its words."""
        return self.y + 4


@dataclass(frozen=True)
class Answer:
    """What a card draws."""

    rows: tuple[Row, ...]
    words: str
    """Which figure it is, and its spread."""
    more: int
    """Systems, and points of a sweep, that are left out."""
    height: float

    @property
    def label(self) -> str:
        """The drawing in words."""
        return f"{self.words}: " + ", ".join(f"{row.name} {row.words}" for row in self.rows)


@dataclass(frozen=True)
class LastAnswer:
    """What there is to say about an experiment."""

    latest: Run
    answered: Run | None
    answer: Answer | None


def last_answers(*, caller: Caller, experiments: Sequence[str]) -> dict[str, LastAnswer]:
    """For each experiment that was ever run: its newest run, and the newest one that was judged, with its figure.

    Three queries, however many experiments and runs there are. Ids begin with their moment, so the greatest is newest.
    """
    runs = runs_readable(caller).filter(experiment__in=experiments).order_by()
    judged = runs.filter(outcome__in=[Outcome.PASSED, Outcome.FAILED])
    newest = dict(runs.values_list("experiment").annotate(newest=Max("id")))
    answered = dict(judged.values_list("experiment").annotate(newest=Max("id")))
    wanted = {*newest.values(), *answered.values()}
    rows = {run.pk: run for run in Run.objects.filter(pk__in=wanted).defer("spec", "search")}
    found = {}
    for name, run_id in newest.items():
        told = rows.get(answered.get(name, ""))
        found[name] = LastAnswer(rows[run_id], told, answer_of(told) if told else None)
    return found


def answer_of(run: Run) -> Answer | None:
    """The figure of a run; None if its summary has none."""
    systems = run.summary.get("systems")
    if not isinstance(systems, dict) or not systems:
        return None
    # In the experiment's order: PostgreSQL's jsonb does not keep that of the summary.
    place = {name: number for number, name in enumerate(run.systems)}
    names = sorted(systems, key=lambda name: (place.get(name.partition(" ")[0], len(place)), name))
    for metric in [*_spoken_of(run.summary), "ttft_ms", "jct"]:
        told = [(name, figure) for name in names if (figure := _figure(systems[name], metric)) is not None]
        if told and len(told) == len(names):
            return _drawn(told, metric)
    return None


def _spoken_of(summary: Mapping[str, Any]) -> list[str]:
    metrics: list[str] = []
    expectations = summary.get("expectations")
    told = [str(one.get("metric", "")) for one in expectations if isinstance(one, dict)] if expectations else []
    for text in sorted(told, key=lambda text: not text.startswith("ratio(")):
        for path in _METRIC.findall(text):
            family = path.rpartition(".")[0] if path.rpartition(".")[2] in _STATISTICS else path
            if not path.startswith(_NO_FIGURE):
                metrics.append("jct" if family.startswith("jct") else family)
    return list(dict.fromkeys(metrics))


_STATISTICS = frozenset({"n", "mean", "p50", "p90", "p99", "p999", "worst", "total_s", "least_s", "most_s"})


def _figure(system: Any, metric: str) -> tuple[float, float, float] | None:
    """Middle and both ends of its spread."""
    told = system
    for key in metric.split("."):
        told = told.get(key) if isinstance(told, dict) else None
    if isinstance(told, dict):
        keys = ("total_s", "least_s", "most_s") if metric == "jct" else ("p50", "p50", "p99")
        middle, low, high = (told.get(key) for key in keys)
    else:
        middle = low = high = told
    if not isinstance(middle, int | float) or isinstance(middle, bool):
        return None
    ends = [one if isinstance(one, int | float) else middle for one in (low, high)]
    return float(middle), float(ends[0]), float(ends[1])


def _drawn(told: list[_Told], metric: str) -> Answer:
    shown, at = _at_one_point(told)
    top = max(high for _, (_, _, high) in shown) * 1.04 or 1.0
    # Units of the metric itself, or of the statistic that it is made of.
    unit = "s" if metric == "jct" else next((words for end, words in _UNITS if metric.endswith(end)), "")
    rows = []
    for number, (name, (middle, low, high)) in enumerate(shown):
        x, x0, x1 = (LEFT + max(0.0, one) / top * (RIGHT - LEFT) for one in (middle, low, high))
        said = f"{number_words(middle)} {unit}".strip()
        rows.append(Row(name, number * ROW + 12, round(x, 1), round(x0, 1), round(x1, 1), number, said))
    spread = {"jct": ", least to most of the repeats"}.get(
        metric, ", median to p99" if metric.endswith(("_ms", "_us")) else ""
    )
    words = _WORDS.get(metric, metric.replace("_", " ").replace(".", ", "))
    return Answer(tuple(rows), f"{words}{spread}{at}", len(told) - len(rows), len(rows) * ROW + 2)


def _at_one_point(told: list[_Told]) -> tuple[list[_Told], str]:
    """What a card has room for: of a sweep its systems at the last of the points, and which that is."""
    points = {point for name, _ in told if (point := name.partition(" ")[2])}
    if not points:
        return told[:SHOWN], ""
    last = max(points, key=_in_order)
    there = [(name.partition(" ")[0], figure) for name, figure in told if name.partition(" ")[2] == last]
    return there[:SHOWN], f", at {last.replace('=', ' ')}"


def _in_order(point: str) -> list[tuple[str, float]]:
    """A point's values by their size: 1024 comes after 128."""
    return [(words, float(number or 0)) for words, number in _NUMBERED.findall(point)]


def number_words(value: float) -> str:
    """About three digits."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"
