from __future__ import annotations

import msgspec

from testbed.events import schema
from testbed.experiment.paper import Ours, beside, bundled_papers
from testbed.experiment.report import ReportFacts, number, report_text
from testbed.experiment.spec import Bound
from testbed.experiment.summary import RunSummary, fold_trial, summarise
from tests.testbed.metrics.stories import Story, ask, small_run, started, waited

FACTS = ReportFacts(
    "Blink serves four requests", "Do they all arrive?", ("step times are modelled",), (), ("./looplane up",)
)


def summary() -> RunSummary:
    expect = {"systems.blink.ttft_ms.p50": Bound(at_most=25), "systems.blink.ttft_ms.p99": Bound(at_most=25)}
    return summarise("20260101-000000-abcdef", "/runs/x", [fold_trial("blink", "blink", "", small_run())], expect)


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_the_table_has_every_latency_with_n_and_dashes_where_n_is_too_small() -> None:
    text = report_text(summary(), FACTS)
    assert line(text, "blink").split() == ["blink", "n", "p50", "p90", "p99", "p999", "mean", "worst"]
    assert line(text, "TTFT ms").split() == ["TTFT", "ms", "4", "20.50", "-", "-", "-", "20.50", "20.50"]
    assert line(text, "ITL ms").split() == ["ITL", "ms", "16", "6.00", "6.00", "-", "-", "6.00", "6.00"]
    assert line(text, "TPOT ms").split()[2] == "4"
    assert "p99 takes 100, p999 takes 1,000 values" in text


def test_definitions_are_named_and_the_other_tools_figures_stand_beside() -> None:
    text = report_text(summary(), FACTS)
    assert "TPOT  vllm: per request (last - first) / (tokens - 1)" in text
    # (20.5 + 4 * 6) / 5: the TTFT is in it.
    assert "TPOT 8.90 / -" in line(text, "guidellm")
    assert "TTFT 19.70 / -" in line(text, "front end")


def test_outcome_fidelity_and_clock_are_said_apart_before_the_figures() -> None:
    text = report_text(summary(), FACTS)
    head = text.splitlines()[:7]
    assert "Outcome   failed: 1 of 2 expectations did not hold" in head
    assert "Fidelity  faithful" in head
    assert "Clock     simulated clock: modelled time" in head


def test_expectations_thresholds_folder_and_how_to_open_it() -> None:
    text = report_text(summary(), FACTS)
    assert "held    systems.blink.ttft_ms.p50 at most 25: 20.5" in text
    assert "BROKEN  systems.blink.ttft_ms.p99 at most 25: ttft_ms.p99 takes at least 100 values, there are 4" in text
    assert line(text, "held     log gaps").endswith("0, limit 0 records")
    assert text.endswith("Folder  /runs/x\nOpen    ./looplane up\n")
    assert "step times are modelled" in text


def test_a_degraded_run_says_why_at_the_top_and_what_failed() -> None:
    story = ask(Story().at(0, "bench", started("wall", 8.0)), "a", 0, [10, 20])
    story.at(1, "client0", schema.RequestSent("b", 0, 0, 1, 1), schema.RequestFailed("b", "ring_full"))
    story.at(50, "bench", waited(30), schema.RunFinished("passed"))
    found = summarise("r", "/r", [fold_trial("t", "blink", "", story.records())])
    text = report_text(found, FACTS)
    assert "Fidelity  degraded\n          host busy: run-queue wait of node gpu0 30 % of wall time, limit 20" in text
    assert "CROSSED  run-queue wait" in text
    assert "2 sent, 1 completed, 1 failed (ring_full: 1)" in text
    assert "wall clock, time × 8; every figure is in true units" in text
    assert "-        lateness p99          not measured, limit 0.5" in text


def test_the_papers_values_stand_beside_ours_with_their_conditions() -> None:
    made = summary()
    paper = bundled_papers()[0]
    rows = beside(paper, Ours("blink", "llama-3-8b", {}, made.systems["blink"]))
    text = report_text(made, FACTS._replace(beside={"blink": rows}))
    assert "blink beside the paper: a p99 takes 100 requests, measured are 4\n" in text
    assert "ours" not in text
    known = [msgspec.structs.replace(row, ours=20.5, n=120) for row in rows[:1]] + list(rows[1:])
    text = report_text(made, FACTS._replace(beside={"blink": known}))
    assert "ttft_ms.p99    ours 20.50 ms, n 120 by guidellm's definition; paper 653.80 ms" in text
    assert text.count("; paper ") == 1
    assert "the paper's: one H100 (96 GB), ShareGPT v3 by guidellm" in text
    assert "  a p99 takes 100 requests, measured are 4\n" in text


def test_the_clock_line_says_what_byte_scale_slows() -> None:
    story = Story().at(0, "bench", schema.RunStarted("blink", "wall", 6.0, 60, 7, 0), schema.RunFinished("passed"))
    text = report_text(summarise("r", "/r", [fold_trial("t", "blink", "", story.records())]), FACTS)
    assert "Clock     wall clock, time × 6, link rates ÷ 60; every figure is in true units" in text


def test_the_clock_line_tells_systems_with_scales_of_their_own_apart() -> None:
    trials = [
        fold_trial(
            name, name, "", Story().at(0, "bench", schema.RunStarted(name, "wall", dilation, scale, 7, 0)).records()
        )
        for name, dilation, scale in (("blink", 2.0, 60), ("vllm", 1.0, 1), ("sglang", 1.0, 1))
    ]
    text = report_text(summarise("r", "/r", trials), FACTS)
    assert "wall clock, time × 2, link rates ÷ 60 (blink), time × 1 (vllm, sglang); every figure" in text


def test_lines_fit_a_terminal() -> None:
    assert max(len(line) for line in report_text(summary(), FACTS).splitlines()) <= 120


def test_a_run_in_which_nothing_happened_is_reported_too() -> None:
    text = report_text(summarise("r", "/r", []), FACTS)
    assert "Outcome   lost: no trial has an event log" in text


def test_numbers_for_people() -> None:
    assert (number(None), number(1234.567), number(0.5, 3)) == ("-", "1,234.57", "0.500")
