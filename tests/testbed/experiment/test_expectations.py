from __future__ import annotations

from typing import Any

import msgspec
import pytest

from testbed.experiment.agentic_metrics import AGENTIC_METRICS
from testbed.experiment.expectations import bound_words, evaluate, holds
from testbed.experiment.host_figures import HOST_METRICS, NEIGHBOUR_METRICS
from testbed.experiment.metric_paths import METRICS, UnknownMetric
from testbed.experiment.prefix_figures import PREFIX_METRICS
from testbed.experiment.recovery_figures import RECOVERY_METRICS
from testbed.experiment.spec import Bound
from testbed.experiment.summary import fold_trial, summarise, summarise_system
from testbed.metrics.latency import EVERYTHING
from tests.testbed.metrics.host_stories import host_story
from tests.testbed.metrics.stories import Story, ask, lookups, outage, small_run, started, waited

FIGURES: dict[str, Any] = {
    "systems": {
        "blink": {"ttft_ms": {"p50": 20.0, "p99": None, "n": 64}, "throughput_tokens_per_s": None},
        "vllm": {"ttft_ms": {"p50": 50.0, "p99": 0.0, "n": 640}, "throughput_tokens_per_s": 9.0},
    },
    "fidelity": {"verdict": "degraded"},
}


def one(text: str, bound: Bound) -> Any:
    (row,) = evaluate({text: bound}, FIGURES)
    return row


@pytest.mark.parametrize(
    ("bound", "value", "held"),
    [
        (Bound(at_least=5), 5, True),
        (Bound(at_least=5), 4.999, False),
        (Bound(at_most=5), 5, True),
        (Bound(at_most=5), 5.001, False),
        (Bound(between=(1, 3)), 1, True),
        (Bound(between=(1, 3)), 3, True),
        (Bound(between=(1, 3)), 3.1, False),
        (Bound(at_least=1, at_most=3), 2, True),
        (Bound(at_least=1, at_most=3), 0, False),
        (Bound(equals=64), 64, True),
        (Bound(equals=64), 63, False),
        (Bound(equals="faithful"), "faithful", True),
        (Bound(equals="faithful"), "degraded", False),
        (Bound(at_least=1), "faithful", False),
    ],
)
def test_ends_are_inside(bound: Bound, value: float | str, held: bool) -> None:
    assert holds(bound, value) is held


def test_a_row_says_what_was_expected_and_what_was_found() -> None:
    row = one("systems.blink.ttft_ms.p50", Bound(at_most=25))
    assert (row.text, row.bound) == ("systems.blink.ttft_ms.p50 at most 25", "at most 25")
    assert (row.measured, row.held, row.reason) == (20.0, True, "")


def test_a_ratio_is_of_two_values() -> None:
    row = one("ratio(systems.vllm.ttft_ms.p50, systems.blink.ttft_ms.p50)", Bound(at_least=2.5))
    assert (row.measured, row.held) == (2.5, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("systems.blink.ttft_ms.p99", "ttft_ms.p99 takes at least 100 values, there are 64"),
        ("systems.blink.throughput_tokens_per_s", "throughput_tokens_per_s has no value: nothing was measured"),
        (
            "ratio(systems.vllm.ttft_ms.p50, systems.blink.ttft_ms.p99)",
            "ttft_ms.p99 takes at least 100 values, there are 64",
        ),
        ("ratio(systems.blink.ttft_ms.p50, systems.vllm.ttft_ms.p99)", "systems.vllm.ttft_ms.p99 is 0"),
    ],
)  # fmt: skip
def test_without_a_value_nothing_holds_and_the_row_says_why(text: str, reason: str) -> None:
    row = one(text, Bound(at_least=-1e9))
    assert (row.measured, row.held, row.reason) == (None, False, reason)


def test_the_fidelity_can_be_expected() -> None:
    assert not one("fidelity.verdict", Bound(equals="faithful")).held


def test_a_name_that_no_summary_has_is_refused() -> None:
    with pytest.raises(UnknownMetric, match="a system has no metric"):
        one("systems.blink.tftt_ms.p50", Bound(at_most=1))


def test_every_metric_that_can_be_named_stands_in_a_summary() -> None:
    system = summarise_system([fold_trial("t", "blink", "", small_run())], EVERYTHING)
    figures = {"systems": {"blink": msgspec.to_builtins(system)}, "fidelity": {"verdict": "faithful"}}
    parts = {*AGENTIC_METRICS, *HOST_METRICS, *RECOVERY_METRICS, *PREFIX_METRICS}
    names = [name for name in METRICS if name not in parts]
    rows = evaluate({f"systems.blink.{name}": Bound(at_least=0) for name in names}, figures)
    assert len(rows) == len(names) > 40
    assert all(row.measured is not None or "takes at least" in row.reason for row in rows)


def test_every_metric_of_a_host_that_works_and_of_its_neighbours_stands_in_a_summary() -> None:
    system = summarise_system([fold_trial("t", "vllm", "", host_story().records())], EVERYTHING)
    figures = {"systems": {"vllm": msgspec.to_builtins(system)}, "fidelity": {"verdict": "faithful"}}
    names = [*HOST_METRICS, *(f"neighbours.zip.{name}" for name in NEIGHBOUR_METRICS)]
    rows = evaluate({f"systems.vllm.{name}": Bound(at_least=0) for name in names}, figures)
    assert [row.text for row in rows if row.measured is None] == []
    with pytest.raises(UnknownMetric, match=r"neighbours\.NAME"):
        evaluate({"systems.vllm.neighbours.zip.speed": Bound(at_least=0)}, figures)
    with pytest.raises(UnknownMetric):
        evaluate({"systems.vllm.neighbours.rate": Bound(at_least=0)}, figures)
    (row,) = evaluate({"systems.vllm.neighbours.other.rate": Bound(at_least=0)}, figures)
    assert not row.held


def test_every_metric_of_recovery_stands_in_a_summary() -> None:
    system = summarise_system([fold_trial("t", "blink", "", outage().records())], EVERYTHING)
    figures = {"systems": {"blink": msgspec.to_builtins(system)}, "fidelity": {"verdict": "faithful"}}
    rows = evaluate({f"systems.blink.{name}": Bound(at_least=0) for name in RECOVERY_METRICS}, figures)
    assert len(rows) == len(RECOVERY_METRICS) > 10
    assert [row.text for row in rows if row.measured is None and "takes at least" not in row.reason] == []


def test_every_metric_of_a_prefix_cache_stands_in_a_summary() -> None:
    system = summarise_system([fold_trial("t", "blink", "", lookups().records())], EVERYTHING)
    figures = {"systems": {"blink": msgspec.to_builtins(system)}}
    rows = evaluate({f"systems.blink.{name}": Bound(at_least=0) for name in PREFIX_METRICS}, figures)
    assert [row.measured for row in rows] == [0.32, 4, 3, 300, 96, 6]


def test_each_system_has_a_verdict_of_its_own_trials() -> None:
    busy = ask(Story().at(0, "bench", started("wall", 10.0)), "q", 0, [10]).at(500, "bench", waited(30)).records()
    calm = [fold_trial(f"blink-r{n}", "blink", "", small_run(), repeat=n) for n in range(2)]
    trials = [*calm, fold_trial("vllm-r0", "vllm", "", busy), fold_trial("vllm-r1", "vllm", "", small_run(), repeat=1)]
    expect = {f"systems.{name}.fidelity.verdict": Bound(equals="faithful") for name in ("blink", "vllm")}
    found = summarise("r", "/r", trials, {**expect, "fidelity.verdict": Bound(equals="degraded")})
    assert [(row.measured, row.held) for row in found.expectations] == [
        ("faithful", True), ("degraded", False), ("degraded", True),
    ]  # fmt: skip
    of_vllm = found.systems["vllm"].fidelity
    assert of_vllm is not None
    assert of_vllm.reasons
    assert all(reason.startswith("vllm-r0: ") for reason in of_vllm.reasons)


def test_a_metric_of_a_part_that_a_run_has_not_does_not_hold() -> None:
    figures = {"systems": {"blink": {"jct": None, "collectives": {"dispatch": {"n": 0, "time_us": {"n": 0}}}}}}
    for name in ("jct.total_s", "jct.agent_s.p99", "collectives.all_to_all.n", "collectives.dispatch.time_us.p50"):
        (row,) = evaluate({f"systems.blink.{name}": Bound(at_least=0)}, figures)
        assert not row.held
        assert "value" in row.reason


def test_rows_of_a_sweep_name_their_point() -> None:
    trials = [fold_trial(f"t{n}", "blink", f"requests={n}", small_run(requests=n)) for n in (2, 3)]
    summary = summarise("r", "/r", trials, {"systems.blink.requests.sent": Bound(at_most=2)})
    assert [(row.point, row.measured, row.held) for row in summary.expectations] == [
        ("requests=2", 2, True),
        ("requests=3", 3, False),
    ]


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(at_least=0.1), "at least 0.1"),
        (Bound(between=(1, 2.5)), "between 1 and 2.5"),
        (Bound(equals="faithful"), "equal to faithful"),
        (Bound(at_least=1, at_most=2), "at least 1 and at most 2"),
    ],
)
def test_a_bound_in_words(bound: Bound, words: str) -> None:
    assert bound_words(bound) == words
