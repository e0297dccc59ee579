from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from testbed.dualpath.read_paths import HOPS as TABLE_OF_HOPS
from testbed.experiment.agentic_figures import AgenticFigures
from testbed.experiment.agentic_metrics import AGENTIC_METRICS, HOPS
from testbed.experiment.metric_paths import Metric, parse_metric_path
from testbed.experiment.summary import SystemSummary, fold_trial, summarise_system
from testbed.metrics.latency import EVERYTHING
from tests.testbed.metrics.agentic_stories import agentic_run

FOR_PEOPLE = {"attention.steps", "hop_model.where", "accidents.lost", "blocks.reasons"}
"""What a summary shows and no experiment can ask for."""


def inner(kind: Any, part: str) -> Any:
    """The type of `part` of a value of type `kind`. Raises KeyError."""
    if get_origin(kind) in {Union, types.UnionType}:
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    return get_type_hints(kind)[part]


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    for name, part in value.items():
        yield from leaves(part, f"{path}.{name}" if path else name)


def test_every_metric_is_a_place_in_a_summary() -> None:
    for name in AGENTIC_METRICS:
        kind: Any = SystemSummary
        for part in name.split("."):
            kind = inner(kind, part)
        assert kind in (int, float, float | None, int | None), name
        assert parse_metric_path(f"systems.ours.{name}", ["ours"]) == Metric("ours", name)


def test_every_figure_of_a_run_can_be_asked_for() -> None:
    system = summarise_system([fold_trial("t", "ours", "", agentic_run())], EVERYTHING)
    figures = {name: msgspec.to_builtins(getattr(system, name)) for name in AgenticFigures.__struct_fields__}
    missing = [name for name, part in figures.items() if part is None]
    assert missing == ["hop_model", "isolation"], "which take a plan, and a port's forecast (test_isolation.py)"
    unnamed = {
        path for path in leaves(figures) if path not in AGENTIC_METRICS and not path.startswith(tuple(FOR_PEOPLE))
    }
    assert unnamed == {"hop_model", "isolation"}


def test_hops_are_those_of_the_table() -> None:
    assert set(HOPS) == set(TABLE_OF_HOPS)
