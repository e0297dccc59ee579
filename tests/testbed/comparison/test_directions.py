"""Every metric has a direction, or a reason why it has none."""

from __future__ import annotations

import pytest

from testbed.comparison.directions import DIRECTIONS, Direction, direction_of
from testbed.comparison.rows import HEADLINES
from testbed.comparison.wording import title_of, unit_of_metric
from testbed.experiment.metric_paths import METRICS


def test_every_metric_has_a_rule() -> None:
    for metric in [*METRICS, "neighbours.pbzip2.rate", "neighbours.pbzip2.cores"]:
        assert direction_of(metric).reason


def test_every_rule_is_the_rule_of_some_metric() -> None:
    used = {direction_of(metric).pattern for metric in METRICS} | {"neighbours.*.rate", "neighbours.*"}
    assert {row.pattern for row in DIRECTIONS} == used


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("ttft_ms.mean", Direction.LOWER),
        ("ttft_ms.n", Direction.NEITHER),
        ("throughput_tokens_per_s", Direction.HIGHER),
        ("requests.failed", Direction.LOWER),
        ("jct.in_objectives", Direction.HIGHER),
        ("batches.decode.tokens.worst", Direction.NEITHER),
        ("engines.pe.busy", Direction.NEITHER),
        ("host.per_s.page-faults", Direction.NEITHER),
        ("snic.max_over_avg.1s", Direction.LOWER),
        ("isolation.p99_over_forecast", Direction.NEITHER),
    ],
)
def test_directions(metric: str, direction: Direction) -> None:
    assert direction_of(metric).direction is direction


def test_a_figure_of_another_version_has_none() -> None:
    with pytest.raises(KeyError):
        direction_of("warp_factor")


def test_headlines_are_metrics_with_titles() -> None:
    for metric in HEADLINES:
        assert metric in METRICS
        assert title_of(metric)[0].isupper()
        assert len(title_of(metric)) <= 40


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("ttft_ms.p99", "ms"), ("jct.total_s", "s"), ("jct.in_objectives", "share"), ("host.step_us.mean", "µs"),
        ("throughput_tokens_per_s", "tokens/s"), ("paths.read_bytes.prefill", ""), ("snic.pe.bytes", "bytes"),
        ("host.wait_percent", "percent"), ("energy.avg_watts", "W"), ("engines.pe.tokens", ""), ("ttft_ms.n", ""),
    ],
)  # fmt: skip
def test_units(metric: str, unit: str) -> None:
    assert unit_of_metric(metric) == unit
