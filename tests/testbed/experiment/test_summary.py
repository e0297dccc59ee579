from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.events import schema
from testbed.events.log import Record
from testbed.experiment.spec import Bound
from testbed.experiment.summary import (
    RunSummary,
    TrialResults,
    fold_trial,
    read_summary,
    selection_of,
    summarise,
    write_summary,
)
from testbed.metrics.latency import DEFINITIONS, Selection
from testbed.units import SECOND
from tests.testbed.metrics.stories import Story, ask, serve, small_run, started, waited


def trial(records: list[Record], label: str = "blink", system: str = "blink", point: str = "") -> TrialResults:
    return fold_trial(label, system, point, records)


def told(story: Story, *, outcome: str = "passed", detail: str = "") -> list[Record]:
    return story.at(9000, "bench", schema.RunFinished(outcome, detail)).records()


def summary(*trials: TrialResults, **expect: Bound) -> RunSummary:
    named = {f"systems.blink.{key}": bound for key, bound in expect.items()}
    return summarise("20260101-000000-abcdef", "/runs/x", trials, named)


def test_the_object_of_run_json_has_what_the_command_promises() -> None:
    found: dict[str, Any] = json.loads(write_summary(summary(trial(small_run(requests=4, tokens=5)))))
    assert {"run", "folder", "outcome", "fidelity", "systems", "expectations"} <= set(found)
    assert found["fidelity"]["verdict"] == "faithful"
    assert found["fidelity"]["reasons"] == []
    system = found["systems"]["blink"]
    for latency in ("ttft_ms", "ttst_ms", "itl_ms", "tpot_ms"):
        assert {"p50", "p99", "p999", "n", "definition"} <= set(system[latency])
    # Sent at 0, first token 20.5 ms later, then one each 6 ms.
    assert (system["ttft_ms"]["p50"], system["itl_ms"]["p50"], system["itl_ms"]["n"]) == (20.5, 6.0, 16)
    assert system["ttft_ms"]["p99"] is None
    counts = system["requests"]
    assert (counts["sent"], counts["completed"], counts["failed"]) == (4, 4, 0)
    # 20 tokens from the first sending at 100 to the last end at 444.6 ms.
    assert system["throughput_tokens_per_s"] == pytest.approx(20 / 0.3446, abs=1e-3)
    assert set(system["definitions"]) == {"vllm", "guidellm", "inference-perf", "genai-perf", "aiperf"}
    assert system["front_end"]["ttft_ms"]["p50"] == 19.7


def test_a_summary_reads_back_as_it_was_written() -> None:
    made = summary(trial(small_run()), trial(small_run(), label="r1"))
    assert read_summary(write_summary(made)) == made
    assert write_summary(made) == write_summary(read_summary(write_summary(made)))


def test_repeats_are_pooled_and_points_are_not() -> None:
    one, two = trial(small_run(requests=2), "r0"), trial(small_run(requests=3), "r1")
    pooled = summary(one, two)
    assert list(pooled.systems) == ["blink"]
    assert (pooled.systems["blink"].trials, pooled.systems["blink"].ttft_ms.n) == (2, 5)
    # Rates are added up over the time of both, so two equal repeats have the rate of one.
    alone, twice = summary(one), summary(one, one._replace(label="r1"))
    assert twice.systems["blink"].throughput_tokens_per_s == alone.systems["blink"].throughput_tokens_per_s
    swept = summary(one._replace(point="rate=1"), two._replace(point="rate=2"))
    assert {name: system.ttft_ms.n for name, system in swept.systems.items()} == {"blink rate=1": 2, "blink rate=2": 3}


def test_the_warm_up_counts_in_no_latency_but_in_the_totals() -> None:
    found = summarise("r", "/r", [trial(small_run(requests=4))], selection=Selection(warm_up_requests=3))
    system = found.systems["blink"]
    assert (system.measured_requests, system.ttft_ms.n, system.requests.sent) == (1, 1, 4)
    assert selection_of({"warm_up": {"requests": 3, "seconds": 1.5}}) == Selection(3, 3 * SECOND // 2)
    assert selection_of({}) == Selection()


def test_failed_requests_are_counted_by_reason_and_in_no_latency() -> None:
    story = ask(Story().at(0, "bench", started()), "good", 0, [10])
    for name in ("a", "b"):
        story.at(1, "client0", schema.RequestSent(name, 0, 0, 1, 1), schema.RequestFailed(name, "ring_full"))
    system = summary(trial(told(story))).systems["blink"]
    assert system.requests.errors == {"ring_full": 2}
    assert (system.requests.failed, system.ttft_ms.n) == (2, 1)


def test_a_served_run_without_a_client_log_shows_the_front_ends_view_labelled() -> None:
    story = serve(Story().at(0, "bench", started()), 1, 0)
    system = summary(trial([record for record in told(story) if record.node != "client0"])).systems["blink"]
    assert system.ttft_ms.definition.startswith("front end: ")
    assert (system.ttft_ms.p50, system.requests.completed) == (19.7, 1)
    assert {name: found.ttft_ms.p50 for name, found in system.definitions.items()} == dict.fromkeys(DEFINITIONS, 19.7)
    assert system.definitions["guidellm"].tpot_ms.definition.startswith("front end, guidellm: per request")


def test_expectations_decide_between_passed_and_failed() -> None:
    records = small_run()
    assert summary(trial(records), **{"requests.completed": Bound(equals=4)}).outcome == "passed"
    failed = summary(trial(records), **{"requests.completed": Bound(equals=5), "requests.sent": Bound(equals=4)})
    assert (failed.outcome, failed.detail) == ("failed", "1 of 2 expectations did not hold")


def test_an_invalid_fidelity_is_an_error_and_not_a_failure() -> None:
    story = ask(Story().at(0, "bench", started("wall", 10.0)), "q", 0, [10])
    story.at(500, "bench", waited(99))
    found = summary(trial(told(story)), **{"requests.completed": Bound(equals=9)})
    assert found.outcome == "errored"
    assert found.detail.startswith("fidelity invalid: host busy: run-queue wait of node gpu0 99 % of wall time")
    assert not found.expectations[0].held


@pytest.mark.parametrize("outcome", ["errored", "cancelled", "lost"])
def test_what_stopped_a_trial_comes_first(outcome: str) -> None:
    broken = trial(told(Story().at(0, "bench", started()), outcome=outcome, detail="why"), label="r1")
    found = summary(trial(small_run()), broken, **{"requests.completed": Bound(equals=0)})
    assert (found.outcome, found.detail) == (outcome, "r1: why")
    assert [row.outcome for row in found.trials] == ["passed", outcome]


def test_a_log_without_an_end_is_lost_or_its_nodes_last_words_are_told() -> None:
    story = Story().at(0, "bench", started(), schema.StageEntered("nodes"))
    assert summary(trial(story.records())).detail == "the log ends without run.finished, in stage nodes"
    story.at(5, "gpu0", schema.NodeStopped(1, "MemoryError"))
    found = summary(trial(story.records()))
    assert (found.outcome, found.detail) == ("errored", "gpu0 ended: MemoryError")
    assert summary().outcome == "lost"


def test_the_worst_verdict_of_all_trials_stands_with_each_reason() -> None:
    story = ask(Story().at(0, "bench", started("wall", 10.0)), "q", 0, [10])
    story.at(500, "bench", waited(30))
    found = summary(trial(small_run(), "sim"), trial(told(story), "wall"))
    assert found.fidelity.verdict == "degraded"
    assert "wall: host busy: run-queue wait of node gpu0 30 % of wall time, limit 20" in found.fidelity.reasons
    assert next(one for one in found.fidelity.thresholds if one.name == "run-queue wait").measured == 30
