"""Comparing runs and drawing sweeps, in real Chromium on the real stack."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Console, Visit, fits, looplane

pytestmark = [pytest.mark.browser, pytest.mark.root]

EXPERIMENT = "fixtures/experiments/blink/small.toml"
COMMON = ("workload.requests=12", "workload.lengths.output_high=8", "expect={}", "repeats=2")


SLOWLY = 60_000
"""Milliseconds: logs are read by a process of low priority."""


@dataclass
class Runs:
    """Finished runs of the command line: only an admin sees them."""

    slow: str
    fast: str
    swept: str


@pytest.fixture(scope="module")
def runs(console: Console) -> Iterator[Runs]:
    slow, fast, swept = "20261130-100000-0c0a01", "20261130-100100-0c0a02", "20261130-100200-0c0a03"
    told = {
        slow: ("systems.blink.max_batch=1",),
        fast: (),
        swept: (
            'systems.other={kind = "blink", max_batch = 1}',
            'sweep={"workload.arrivals.rate_per_s" = [20, 200]}',
            'expect={"systems.blink.ttft_ms.mean" = {at_most = 200}}',
        ),
    }

    def made(run_id: str) -> None:
        changes = [word for change in (*COMMON, *told[run_id]) for word in ("--set", change)]
        done = looplane("run", EXPERIMENT, *changes, "--run-id", run_id, state=console.state)
        assert done.returncode in (0, 1), done.stderr

    with ThreadPoolExecutor() as side_by_side:
        list(side_by_side.map(made, told))
    yield Runs(slow, fast, swept)
    for run_id in told:
        shutil.rmtree(console.folder(run_id), ignore_errors=True)


@pytest.fixture
def listed(visit: Visit, runs: Runs) -> Runs:
    """Once the console has taken up all of them."""
    page = visit("/compare")
    for run_id in (runs.slow, runs.fast, runs.swept):
        for _ in range(120):
            if page.locator(f"#pick-{run_id}").count():
                break
            page.wait_for_timeout(500)
            page.reload()
        expect(page.locator(f"#pick-{run_id}")).to_be_visible()
    page.context.close()
    return runs


def is_sound(page: Page) -> None:
    """No axe violation, and nothing beside the page at its width."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    fits(page)


def is_painted(page: Page) -> None:
    """Waits until more than two thousand pixels of the timelines have ink."""
    page.wait_for_function("""() => {
        const canvas = document.getElementById("al");
        const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let place = 3; place < dots.length; place += 4) count += dots[place] > 0;
        return count > 2000; }""")


def test_two_runs_are_picked_by_keyboard_and_read(visit: Visit, listed: Runs) -> None:
    page = visit("/compare")
    expect(page.locator("#pick-count")).to_contain_text("Choose at least two")
    rows = page.locator("a[data-row]").evaluate_all("rows => rows.map((row) => row.getAttribute('href'))")
    for place, href in enumerate(rows):
        page.keyboard.press("j")
        expect(page.locator("a[data-row]").nth(place)).to_be_focused()
        if href in (f"/runs/{listed.fast}", f"/runs/{listed.slow}"):
            page.keyboard.press("x")
    expect(page.locator("#pick-count")).to_have_text("2 runs chosen")
    is_sound(page)
    page.keyboard.press("c")
    expect(page.locator(".answer")).to_contain_text(
        re.compile(r"B’s mean time to first token is .* (higher|as high), outside the spread of two repeats"),
        timeout=SLOWLY,
    )
    differs = page.get_by_role("table", name="Settings that differ")
    expect(differs).to_contain_text("system.max_batch")
    expect(differs.locator("mark")).to_have_count(1)
    expect(page.get_by_role("table", name="Figures of each side")).to_contain_text("worse, outside the spread")
    expect(page.locator("svg.chart.dots").first).to_be_visible()
    expect(page.locator("#al-sub")).to_contain_text("matched by name", timeout=SLOWLY)
    expect(page.get_by_role("heading", name="Ours beside the paper’s")).to_be_visible()
    page.get_by_role("link", name="Swap A and B").click()
    expect(page.locator(".answer")).to_contain_text("lower, outside the spread of two repeats", timeout=SLOWLY)
    is_sound(page)


def test_timelines_move_by_keyboard_and_the_address_keeps_the_view(visit: Visit, listed: Runs) -> None:
    page = visit(f"/compare?run={listed.fast}&run={listed.slow}", theme="dark")
    expect(page.locator("#al-sub")).to_contain_text("matched by name", timeout=SLOWLY)
    page.wait_for_function("document.getElementById('al').height > 200")
    is_painted(page)
    page.locator("#al").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"view=m?\d+-\d+-0"))
    kept = page.url
    page.reload()
    expect(page.locator("#al-sub")).to_contain_text("matched by name", timeout=SLOWLY)
    expect(page).to_have_url(kept)
    page.locator("#al").focus()
    page.keyboard.press("PageDown")
    expect(page.locator("#al-words")).to_have_text("Requests 5 to 12 of 12")
    page.get_by_text("Show the", exact=False).first.click()
    expect(page.get_by_role("table", name="Settings that agree")).to_be_visible()
    is_sound(page)


@pytest.mark.parametrize("allowed_errors", [["422"]])
@pytest.mark.parametrize(("width", "theme"), [(360, "light"), (390, "dark"), (1440, "dark")])
def test_every_page_is_sound_at_every_width(visit: Visit, listed: Runs, width: int, theme: str) -> None:
    page = visit("/compare", width=width, theme=theme)
    is_sound(page)
    three = f"/compare?run={listed.fast}&run={listed.slow}&run={listed.swept}:other"
    for path in (three, f"{three}&all=1", f"/compare/sweep?run={listed.swept}", f"/compare/sweep?run={listed.fast}"):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        is_sound(page)


def test_a_point_of_a_sweep_opens_its_trial_by_keyboard(visit: Visit, listed: Runs) -> None:
    page = visit(f"/compare/sweep?run={listed.swept}")
    expect(page.locator(".chart.sweep a")).to_have_count(4)
    expect(page.locator(".chart.sweep .limit")).to_have_count(1)
    expect(page.locator(".chart.sweep .whisker")).to_have_count(4, timeout=SLOWLY)
    page.get_by_label("Figure").select_option("tpot_ms.mean")
    expect(page).to_have_url(re.compile(r"y=tpot_ms\.mean"))
    point = page.locator(".chart.sweep a").first
    expect(point).to_have_accessible_name(re.compile(r"^blink at Workload, arrivals, rate 20 a second: .* ms, from "))
    point.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/runs/{listed.swept}\?trial=blink-rate_per_s%3D20-r0"))


def test_another_part_is_chosen_without_a_button(visit: Visit, listed: Runs) -> None:
    page = visit(f"/compare?run={listed.swept}")
    expect(page.locator(".side")).to_have_count(2)
    page.get_by_label("System, point or repeat of B").select_option(label="other, rate 200 a second")
    expect(page.get_by_role("table", name="Settings that differ")).to_contain_text("workload.arrivals.rate_per_s")


def test_what_is_still_being_read_appears_by_itself(visit: Visit, listed: Runs) -> None:
    """The first answer is made to look as it does while a long log is being read; the next ones are as they are."""
    asked: list[str] = []

    def first_is_pending(route: Route) -> None:
        asked.append(route.request.resource_type)
        if len(asked) > 1:
            route.continue_()
            return
        answer = route.fetch()
        without = answer.text().replace("Whole distributions", "").replace('id="al"', 'id="none"')
        route.fulfill(response=answer, body=without.replace('id="compared"', 'id="compared" data-pending'))

    page = visit("/compare")
    page.route("**/compare?run=*", first_is_pending)
    page.goto(f"/compare?run={listed.fast}&run={listed.slow}")
    expect(page.locator("[data-pending]")).to_have_count(0, timeout=SLOWLY)
    assert asked[:2] == ["document", "fetch"]
    expect(page.get_by_role("heading", name="Whole distributions")).to_be_visible()
    expect(page.locator("#al-sub")).to_contain_text("matched by name", timeout=SLOWLY)


@pytest.mark.parametrize("allowed_errors", [["404"]])
def test_a_viewer_finds_nothing_of_it(page_as: Visit, listed: Runs) -> None:
    page = page_as("viewer", "/compare")
    expect(page.get_by_text("No finished run yet")).to_be_visible()
    for path in (f"/compare?run={listed.fast}&run={listed.slow}", f"/compare/sweep?run={listed.swept}"):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 404
