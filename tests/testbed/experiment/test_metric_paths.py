from __future__ import annotations

import pytest

from testbed.experiment.metric_paths import METRICS, Metric, Ratio, UnknownMetric, parse_metric_path


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_every_system_has_a_path(name: str) -> None:
    path = parse_metric_path(f"systems.b.{name}", ["a", "b"])
    assert path == Metric("b", name)
    assert str(path) == f"systems.b.{name}"
    ratio = parse_metric_path(f" ratio( systems.a.{name} ,systems.b.{name}) ", ["a", "b"])
    assert ratio == Ratio(Metric("a", name), Metric("b", name))
    assert parse_metric_path(str(ratio), ["a", "b"]) == ratio


def test_the_verdict_is_a_metric_of_the_run() -> None:
    path = parse_metric_path("fidelity.verdict", ["a"])
    assert path == Metric("", "fidelity.verdict")
    assert path.is_word


def test_the_verdict_of_a_system_is_a_word_and_no_figure() -> None:
    path = parse_metric_path("systems.a.fidelity.verdict", ["a"])
    assert path == Metric("a", "fidelity.verdict")
    assert path.is_word
    assert not Metric("a", "ttft_ms.p99").is_word


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "allowed: systems.NAME.METRIC"),
        ("ttft_ms.p99", "allowed: systems.NAME.METRIC"),
        ("systems.a", "no metric ''"),
        ("systems..ttft_ms.p99", "no system ''"),
        ("systems.aa.ttft_ms.p99", "no system 'aa'; did you mean a"),
        ("systems.a.ttft_ms", "no metric 'ttft_ms'"),
        ("systems.a.ttft_ms.p9", "did you mean ttft_ms.p99"),
        ("ratio(systems.a.itl_ms.n)", "allowed: systems.NAME.METRIC"),
        ("ratio(systems.a.itl_ms.n, systems.a.itl_ms.n, systems.a.itl_ms.n)", "allowed: systems.NAME"),
        ("ratio(fidelity.verdict, systems.a.itl_ms.n)", "a ratio is of two metrics of systems"),
        ("ratio(systems.a.fidelity.verdict, systems.a.itl_ms.n)", "two figures, and fidelity.verdict is a word"),
        ("ratio(systems.a.itl_ms.n, ratio(systems.a.itl_ms.n, systems.a.itl_ms.n))", "allowed: systems.NAME"),
    ],
)
def test_what_names_no_metric_is_refused_with_what_would(text: str, allowed: str) -> None:
    with pytest.raises(UnknownMetric) as raised:
        parse_metric_path(text, ["a"])
    assert allowed in str(raised.value)
