"""What parity compares, pools and says."""

from __future__ import annotations

from testbed.events import schema
from testbed.experiment.parity import AGENTS_COMPARED, COMPARED, compare, parity_text
from testbed.experiment.summary import TrialResults, fold_trial
from testbed.metrics.fidelity import Fidelity
from testbed.metrics.latency import EVERYTHING
from tests.testbed.metrics.agentic_stories import FULL_BYTES, agentic_run
from tests.testbed.metrics.stories import Story, ask, small_run


def trial(
    label: str = "blink", *, verdict: str = "faithful", outcome: str = "passed", slower: float = 1.0
) -> TrialResults:
    story = Story()
    for number in range(4):
        start = 100.0 * number
        ask(story, f"q{number}", start, [start + slower * (20 + 6 * token) for token in range(5)])
    story.at(500, "bench", schema.RunFinished(outcome))
    folded = fold_trial(label, "blink", "", story.records())
    return folded._replace(fidelity=Fidelity(verdict, ("host was busy",) if verdict != "faithful" else (), (), ""))  # type: ignore[arg-type]


def test_equal_runs_hold_every_bound_that_can_be_judged() -> None:
    (parity,) = compare([trial()], [trial()], EVERYTHING)
    assert parity.comparable
    assert parity.held
    assert {row.metric for row in parity.rows} == {row.title for row in COMPARED}
    assert {row.metric: row.held for row in parity.rows}["TTFT p50"] is True
    assert {row.metric: row.held for row in parity.rows}["TTFT p99"] is None  # four requests have no p99


def test_a_difference_beyond_its_bound_is_broken() -> None:
    (parity,) = compare([trial(slower=1.12)], [trial()], EVERYTHING)
    rows = {row.metric: row for row in parity.rows}
    assert rows["TTFT p50"].held is False
    assert round(rows["TTFT p50"].difference_percent or 0) == 12
    assert rows["tokens a second"].held is True
    assert not parity.held
    assert any("BROKEN" in line for line in parity_text(parity))


def test_only_faithful_repeats_are_pooled_and_the_others_are_named() -> None:
    real = [trial("r0"), trial("r1", verdict="degraded", slower=3), trial("r2", outcome="errored", slower=3)]
    (parity,) = compare(real, [trial()] * 3, EVERYTHING)
    assert parity.held
    assert parity.requests == 4
    assert [run.pooled for run in parity.runs] == [True, False, False]
    text = "\n".join(parity_text(parity))
    assert "1 of 3 emulations are faithful and pooled" in text
    assert "left out: r1, passed, degraded: host was busy" in text
    assert "left out: r2, errored, faithful" in text


def test_without_a_faithful_run_nothing_is_compared() -> None:
    (parity,) = compare([trial(verdict="invalid")], [trial()], EVERYTHING)
    assert not parity.comparable
    assert not parity.held
    assert parity.rows == ()


def test_answers_of_another_length_are_no_parity() -> None:
    other = fold_trial("blink", "blink", "", small_run())
    (parity,) = compare([trial()], [other], EVERYTHING)
    assert parity.same_tokens is False
    assert not parity.held


def agents(turns: int = 3, *, both_paths: bool = True) -> TrialResults:
    return fold_trial("ours", "ours", "", agentic_run(2, turns, both_paths=both_paths))


def test_a_system_that_serves_agents_is_compared_by_jct_and_bytes_per_path() -> None:
    (parity,) = compare([agents()], [agents()], EVERYTHING)
    assert parity.held
    assert [row.metric for row in parity.rows] == [compared.title for compared in AGENTS_COMPARED]
    rows = {row.metric: row for row in parity.rows}
    assert (rows["JCT, s"].simulated, rows["JCT, s"].held) == (0.114, True)
    assert rows["read by decode side, GB"].emulated == 30 * FULL_BYTES * 1e-9
    assert rows["hit rate"].held is None


def test_bytes_over_the_other_path_are_no_parity() -> None:
    (parity,) = compare([agents(both_paths=False)], [agents()], EVERYTHING)
    rows = {row.metric: row for row in parity.rows}
    assert rows["JCT, s"].held is True
    assert (rows["read by prefill side, GB"].held, rows["read by decode side, GB"].held) == (False, False)
    assert not parity.held
