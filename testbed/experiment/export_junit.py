"""A run's verdict as JUnit XML, for CI systems: a test case for each expectation, and one each for run and fidelity.

An invalid fidelity is an `error` and the expectations are then `skipped`: a busy host says nothing about the system
(fault C17). The elements and attributes are those that the common readers of the format share.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from testbed.experiment.expectations import Expectation
from testbed.experiment.summary import RunSummary

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 §2.2: no other character may stand in a document, not even escaped."""


def export_junit(summary: RunSummary, experiment: str = "") -> bytes:
    """The XML document of one run."""
    suite_name = _clean(experiment or summary.run)
    root = ElementTree.Element("testsuites", name="looplane")
    suite = ElementTree.SubElement(root, "testsuite", name=suite_name)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _facts(summary):
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    _run_case(suite, suite_name, summary)
    _fidelity_case(suite, suite_name, summary)
    for row in summary.expectations:
        _expectation_case(suite, suite_name, row, skipped=summary.fidelity.verdict == "invalid")
    for kind in ("failure", "error", "skipped"):
        count = str(len(suite.findall(f"testcase/{kind}")))
        for element in (suite, root):
            element.set({"failure": "failures", "error": "errors", "skipped": "skipped"}[kind], count)
    for element in (suite, root):
        element.set("tests", str(len(suite.findall("testcase"))))
    ElementTree.indent(root, space=" ")
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _facts(summary: RunSummary) -> list[tuple[str, str]]:
    return [
        ("run", summary.run),
        ("clock", summary.clock),
        ("dilation", f"{summary.dilation:g}"),
        ("byte_scale", str(summary.byte_scale)),
        ("fidelity", summary.fidelity.verdict),
    ]


def _case(suite: ElementTree.Element, suite_name: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=suite_name, name=_clean(name))


def _run_case(suite: ElementTree.Element, suite_name: str, summary: RunSummary) -> None:
    case = _case(suite, suite_name, "run")
    if summary.outcome in ("errored", "cancelled", "lost") and summary.fidelity.verdict != "invalid":
        ElementTree.SubElement(case, "error", message=_clean(summary.detail or summary.outcome), type=summary.outcome)
    for trial in summary.trials:
        if trial.outcome == "failed":
            ElementTree.SubElement(case, "failure", message=_clean(trial.detail or "failed"), type="failed")


def _fidelity_case(suite: ElementTree.Element, suite_name: str, summary: RunSummary) -> None:
    fidelity = summary.fidelity
    case = _case(suite, suite_name, "fidelity")
    if fidelity.verdict == "invalid":
        message = _clean("; ".join(fidelity.reasons))
        ElementTree.SubElement(case, "error", message=message, type="invalid")
    lines = [fidelity.verdict, *fidelity.reasons, fidelity.note]
    output = ElementTree.SubElement(case, "system-out")
    output.text = _clean("\n".join(line for line in lines if line))


def _expectation_case(suite: ElementTree.Element, suite_name: str, row: Expectation, *, skipped: bool) -> None:
    case = _case(suite, suite_name, f"{row.text} [{row.point}]" if row.point else row.text)
    if skipped:
        ElementTree.SubElement(case, "skipped", message="the run's fidelity is invalid")
    elif not row.held:
        found = row.reason if row.measured is None else f"measured {row.measured}"
        ElementTree.SubElement(case, "failure", message=_clean(f"{row.bound}: {found}"), type="expectation")


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
