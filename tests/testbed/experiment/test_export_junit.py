from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from testbed.events import schema
from testbed.experiment.export_junit import export_junit
from testbed.experiment.spec import Bound
from testbed.experiment.summary import RunSummary, fold_trial, summarise
from tests.testbed.metrics.stories import Story, ask, small_run, started, waited


def summary(waits: float | None = None, outcome: str = "passed", detail: str = "") -> RunSummary:
    expect = {"systems.blink.requests.sent": Bound(equals=4), "systems.blink.ttft_ms.p99": Bound(at_most=9)}
    if waits is None and outcome == "passed":
        return summarise("run-1", "/r", [fold_trial("b", "blink", "", small_run())], expect)
    story = ask(Story().at(0, "bench", started("wall", 9.0)), "q", 0, [10])
    story.at(20, "bench", waited(waits or 1), schema.RunFinished(outcome, detail))
    return summarise("run-1", "/r", [fold_trial("b", "blink", "", story.records())], expect)


def suite(of: RunSummary) -> ElementTree.Element:
    root = ElementTree.fromstring(export_junit(of, "demo"))
    assert root.tag == "testsuites"
    (found,) = root
    return found


def test_each_expectation_is_a_case_that_passes_or_fails() -> None:
    found = suite(summary())
    assert {key: found.get(key) for key in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": "demo", "tests": "4", "failures": "1", "errors": "0", "skipped": "0",
    }  # fmt: skip
    cases = {case.get("name"): case for case in found.findall("testcase")}
    assert list(cases) == [
        "run", "fidelity", "systems.blink.requests.sent equal to 4", "systems.blink.ttft_ms.p99 at most 9",
    ]  # fmt: skip
    failure = cases["systems.blink.ttft_ms.p99 at most 9"].find("failure")
    assert failure is not None
    assert failure.get("message") == "at most 9: ttft_ms.p99 takes at least 100 values, there are 4"
    output = cases["fidelity"].find("system-out")
    assert output is not None
    assert output.text == "faithful\nsimulated clock: modelled time"


def test_an_invalid_fidelity_is_one_error_and_skips_the_rest() -> None:
    found = suite(summary(waits=99.0))
    assert (found.get("errors"), found.get("failures"), found.get("skipped")) == ("1", "0", "2")
    error = found.find("testcase[@name='fidelity']/error")
    assert error is not None
    assert "host busy: run-queue wait of node gpu0 99 %" in (error.get("message") or "")


def test_an_errored_run_is_an_error_of_the_run() -> None:
    error = suite(summary(outcome="errored", detail="no bridge")).find("testcase[@name='run']/error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("errored", "no bridge")


def test_text_that_xml_cannot_hold_is_replaced_and_the_rest_escaped() -> None:
    found = suite(summary(outcome="errored", detail='<b> & "q" \x00\x1b[31m \ud800 é'))
    error = found.find("testcase[@name='run']/error")
    assert error is not None
    assert error.get("message") == '<b> & "q" ��[31m � é'


def test_the_same_summary_gives_the_same_bytes() -> None:
    assert export_junit(summary()) == export_junit(summary())
