"""The report opened in real Chromium: nothing is fetched, nothing complains, axe finds nothing, no sideways scroll."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from testbed.events import schema
from testbed.experiment.paper import Ours, beside, bundled_papers
from testbed.experiment.report import ReportFacts
from testbed.experiment.report_page import report_page
from testbed.experiment.spec import Bound
from testbed.experiment.summary import fold_trial, summarise
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold
from tests.browser.conftest import fits
from tests.testbed.experiment.test_report_agentic import FACTS
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.stories import MS, Story, serve, started

pytestmark = pytest.mark.browser


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    """A page with everything on it: a degraded wall-clock run, a failed request, pauses, lanes, a broken bound."""
    story = Story().at(-1, "dpu0", schema.NodeReady("dpu", 1)).at(0, "bench", started("wall", 4.0))
    for request in range(1, 13):
        serve(story, request, 15 * request, tokens=30)
    story.at(80, "gpu0", schema.SlotMoved(1, 1, "decode_processing", "decode_paused", 1))
    story.at(84, "gpu0", schema.SlotMoved(1, 1, "decode_paused", "decode_processing", 1))
    story.at(90, "client0", schema.RequestSent("<b>", 90 * MS, 0, 1, 1), schema.RequestFailed("<b>", "ring_full"))
    for t in range(0, 500, 50):
        reading = (100 * MS, 9, 1, 0, t * 10**8, 400 * 10**9)
        story.at(t, "bench", *(schema.LinkMeasured("gpu0.cnic0", lane, *reading) for lane in range(4)))
        story.at(t, "gpu0", schema.BatchChanged(t // 50, 0, 0, 9, 9))
        story.at(t, "dpu0", schema.ClockMeasured(100, MS, 9 * MS, 20 * MS))
    records = story.at(600, "bench", schema.CpuMeasured(9.0, 50.0), schema.RunFinished("passed")).records()
    expect = {"systems.blink.requests.failed": Bound(equals=0), "systems.blink.ttft_ms.p50": Bound(at_most=90)}
    summary = summarise("run-1", "/runs/run-1", [fold_trial("blink", "blink", "", records)], expect)
    paper = bundled_papers()[0]
    rows = beside(paper, Ours("blink", "llama-3-8b", {}, summary.systems["blink"]))
    facts = ReportFacts("A run", "What is on the page?", ("a note",), (("seed", "1"),), ("so",), {"blink": rows})
    timeline = Folding({"t": TimelineFold()}).take_all(records).result("t")
    file = tmp_path / "index.html"
    file.write_text(report_page(summary, facts, {"blink": timeline}), encoding="utf-8")
    return file


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    """A page of agents on two read paths, with every part that such a run can have."""
    records = agentic_run()
    summary = summarise("run-2", "/runs/run-2", [fold_trial("ours", "ours", "", records, FACTS)])
    timeline = Folding({"t": TimelineFold()}).take_all(records).result("t")
    file = tmp_path / "index.html"
    file.write_text(report_page(summary, ReportFacts("Two paths"), {"ours": timeline}), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_report_is_whole_accessible_and_alone(chromium: Browser, page_file: Path, scheme: str, width: int) -> None:
    page = opened(chromium, page_file, scheme, width)
    expect(page.locator("h1")).to_have_text("A run")
    expect(page.get_by_text("Degraded", exact=True)).to_be_visible()
    expect(page.locator("svg.pic")).to_have_count(2)
    page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_a_report_of_agents_is_too(chromium: Browser, agents_file: Path, scheme: str, width: int) -> None:
    page = opened(chromium, agents_file, scheme, width)
    expect(page.get_by_role("heading", name="Agents and KV traffic")).to_be_visible()
    expect(page.locator("svg.meter")).to_have_count(5)
    expect(page.get_by_text("Thirteen steps")).to_have_count(0)
    page.close()


def opened(chromium: Browser, page_file: Path, scheme: str, width: int) -> Page:
    """The page, which asks for nothing, complains of nothing, fits its window and has no fault that axe finds."""
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    complaints: list[str] = []
    fetched: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(page_file.as_uri())
    assert complaints == []
    assert fetched == [page_file.as_uri()]
    fits(page)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    return page
