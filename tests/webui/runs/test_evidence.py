"""Tables of a finished run's page: what the summary has is found there, in the report's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.experiment.summary import fold_trial, summarise, write_summary
from tests.testbed.metrics.host_stories import host_story
from webui.runs.evidence import Part, evidence_of
from webui.runs.trials import system_rows, trial_rows


def titled(parts: list[Part]) -> dict[str, Part]:
    return {part.title: part for part in parts}


def test_a_recorded_run_has_its_expectations_and_definitions(recorded_run: Path) -> None:
    summary = json.loads((recorded_run / "summary.json").read_text())
    parts = titled(evidence_of(summary))
    assert [row[0].text for row in parts["Expectations"].rows] == ["held"] * len(summary["expectations"])
    tools = [row[1].text for row in parts["By each tool's definitions"].rows]
    assert {"vllm", "guidellm", "front end"} <= set(tools)
    (energy,) = [row for row in parts["Host, neighbours, energy, recovery"].rows if row[1].text == "energy"]
    assert "mJ/token" in energy[2].text
    assert all(len(row) == len(part.columns) for part in parts.values() for row in part.rows)


def test_host_and_neighbours_in_the_reports_words() -> None:
    summary = json.loads(write_summary(summarise("x", "x", [fold_trial("t", "vllm", "", host_story().records())])))
    rows = titled(evidence_of(summary))["Host, neighbours, energy, recovery"].rows
    assert any("launch gap p50" in cell.text for row in rows for cell in row)
    assert any(row[1].text == "beside" and row[2].text.startswith("zip: ") for row in rows)


def test_a_summary_of_another_version_gives_what_can_be_read() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"systems": 3},
        {"systems": {"vllm": {"host": 3}, "blink": []}},
        {"shares": {"a": [{}]}},
    ]
    for summary in odd:
        assert evidence_of(summary) == []
        assert trial_rows(summary, ["a"]) == []
    assert evidence_of({"expectations": [3, {"text": "a", "held": False, "measured": None, "reason": "no reading"}]})[
        0
    ].rows[0][3].text == ("no reading")


def test_trials_stand_in_their_order_and_systems_with_their_figures() -> None:
    summary = {
        "trials": [
            {"label": "b", "system": "blink", "outcome": "completed", "verdict": "faithful", "sent": 3, "completed": 2},
            {"label": "a", "system": "vllm", "point": "rate=4", "failed": "many"},
        ],
        "systems": {"blink": {"ttft_ms": {"p50": 3.5, "p99": None}, "throughput_tokens_per_s": 9.0}},
    }
    first, second = trial_rows(summary, ["a", "b", "c"])
    assert (first.label, first.point, first.failed) == ("a", "rate=4", 0)
    assert (second.sent, second.completed, second.verdict) == (3, 2, "faithful")
    assert system_rows(summary)[0].values == (3.5, None, None, None, None, None, 9.0)
