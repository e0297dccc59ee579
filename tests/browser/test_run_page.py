"""The run page in real Chromium: a Blink run, a DualPath run and one that broke, and a run from its place in the queue
to its end. Runs are recorded by the command into the console's folder and taken up by it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from testbed.command.places import EXPERIMENTS
from tests.browser.conftest import Console, Visit, fits, is_whole, looplane

pytestmark = [pytest.mark.browser, pytest.mark.root]

SCRIPT = "<script>window.broken=1</script>"
"""Known fault F11: whatever a client, a node or a log writes stays text."""
SIMULATIONS_AT_ONCE = max(1, (os.cpu_count() or 1) - 1)
BLINK, DUALPATH, BROKEN = "20261101-100000-b11b00", "20261101-100001-d0a100", "20261101-100002-bad000"


def record(console: Console, run_id: str, experiment: str, *changes: str) -> Path:
    """A simulated run in the console's folder, once for all tests."""
    folder = console.folder(run_id)
    if not folder.exists():
        words = [word for change in changes for word in ("--set", change)]
        done = looplane("run", str(EXPERIMENTS / f"{experiment}.toml"), "--run-id", run_id, *words, state=console.state)
        assert folder.exists(), done.stderr
    return folder


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Each event of a log, changed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def blink(console: Console) -> str:
    """A Blink run whose clients, texts and log lines try to be scripts, with a line of 900 kB."""
    fresh = not console.folder(BLINK).exists()
    folder = record(console, BLINK, "blink/small", "workload.requests=12")
    if fresh:

        def poison(event: dict[str, Any]) -> None:
            if event["type"] == "tokens.detokenised" and event["first"] == 0:
                event["text"] = SCRIPT
            if event.get("name", "").startswith("request-"):
                event["name"] = f"{SCRIPT}{event['name'][-2:]}"

        for node in ("client0", "dpu0"):
            rewrite(folder / "events" / f"{node}.jsonl", poison)
        host = folder / "events" / "host0.jsonl"
        last = json.loads(host.read_text().splitlines()[-1])
        for number, text in enumerate((SCRIPT, "long " + "z" * 900_000, "a needle in the hay")):
            line = {
                "t": last["t"],
                "node": "host0",
                "seq": last["seq"] + 1 + number,
                "type": "line.logged",
                "text": text,
            }
            with host.open("a") as file:
                file.write(json.dumps({**line, "severity": "warning"}) + "\n")
        plan = json.loads((folder / "plan.json").read_text())
        plan["nodes"][-1]["role"] = SCRIPT
        (folder / "plan.json").write_text(json.dumps(plan))
    return BLINK


@pytest.fixture
def dualpath(console: Console) -> str:
    record(console, DUALPATH, "dualpath/small")
    return DUALPATH


@pytest.fixture
def broken(console: Console) -> str:
    """A run that errored: what its folder says."""
    if not console.folder(BROKEN).exists():
        folder = record(console, BROKEN, "blink/small", "workload.requests=2")
        outcome = {"state": "finished", "outcome": "errored", "detail": "node gpu0 exited with code 3"}
        (folder / "control" / "outcome.json").write_text(json.dumps(outcome))
        bench = folder / "events" / "bench.jsonl"
        last = json.loads(bench.read_text().splitlines()[-1])
        word = {"t": last["t"], "node": "bench", "seq": last["seq"] + 1, "type": "line.logged", "severity": "error"}
        with bench.open("a") as file:
            file.write(json.dumps({**word, "text": "gpu0: no such profile"}) + "\n")
        (folder / "summary.json").unlink()
        shutil.rmtree(folder / "report", ignore_errors=True)
    return BROKEN


def opened(visit: Visit, run_id: str, query: str = "", **options: Any) -> Page:
    """The page of a finished run, once it has everything. The console takes up a folder within a few seconds."""
    page = visit("/runs", **options)
    for _ in range(120):
        if page.request.get(f"/runs/{run_id}").ok:
            break
        page.wait_for_timeout(500)
    page.goto(f"/runs/{run_id}{query}")
    is_whole(page)
    return page


def moment(page: Page) -> list[float]:
    view: list[float] = page.evaluate("() => [looplane.timeline.view.start, looplane.timeline.view.end]")
    return view


# --- what clients and logs write stays text -------------------------------------------------------------------------


def test_f11_scripts_of_clients_nodes_and_logs_stay_text(visit: Visit, blink: str) -> None:
    """Known faults F11 and F5: story, tip, log, topology; a line of 900 kB is cut with a mark."""
    page = opened(visit, blink)
    page.locator("#tl-canvas").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    story = page.locator("#story")
    expect(story.locator(".said")).to_contain_text(SCRIPT)
    expect(story.locator("h3").first).to_contain_text(SCRIPT)
    x = page.evaluate(
        "() => { const { timeline } = looplane; return timeline.xOf(timeline.lanes()[0].tokens[0] + 1e5); }"
    )
    page.locator("#tl-canvas").hover(position={"x": x, "y": 34})
    expect(page.locator("#tl-tip")).to_contain_text("token 1 “<script>")
    log = page.locator("#log")
    expect(log).to_contain_text(SCRIPT)
    expect(log).to_contain_text("characters more, in the file)")
    assert len(log.inner_text()) < 100_000
    expect(page.locator("#topo")).to_contain_text(SCRIPT)
    assert page.evaluate("() => window.broken") is None


# --- log ------------------------------------------------------------------------------------------------------------


def test_the_whole_log_is_searched_paged_and_linked(visit: Visit, console: Console, blink: str) -> None:
    page = opened(visit, blink)
    log, field = page.locator("#log"), page.get_by_label("Search the whole log")
    field.fill("NEEDLE")
    expect(log.locator("li")).to_have_count(1)
    expect(log.locator("mark")).to_have_text("needle")
    page.wait_for_url("**find=NEEDLE*")
    log.locator("a").click()
    page.wait_for_url("**line=*")
    link = page.url
    field.fill("")
    page.get_by_label("Level").select_option("debug")
    page.get_by_label("Node", exact=True).select_option("gpu0")
    expect(log.locator("li").first).to_contain_text("gpu0:")
    older = page.get_by_role("button", name="Older lines")
    lines = (console.folder(blink) / "events" / "gpu0.jsonl").read_text().splitlines()
    while (before := log.locator("li").count()) < len(lines):
        older.click()  # it is away while lines are fetched, and the click waits for it
        page.wait_for_function("n => document.querySelectorAll('#log li').length > n", arg=before)
    expect(log.locator("li")).to_have_count(len(lines))
    expect(older).to_be_hidden()
    fresh = visit(link.replace(page.url.split("/runs/")[0], ""))
    expect(fresh.locator("#log .marked")).to_contain_text("a needle in the hay")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    assert Path(download.value.path()).read_text().splitlines() == lines


# --- story and charts -----------------------------------------------------------------------------------------------


def test_a_turns_story_tells_its_path_stages_and_hops(visit: Visit, dualpath: str) -> None:
    page = opened(visit, dualpath)
    name = page.evaluate(
        "() => [...looplane.model.turns.byName.values()].find((turn) => turn.path && turn.path !== 'none').name"
    )
    page = opened(visit, dualpath, f"?request=n{name}&story=1")
    story = page.locator("#story")
    expect(story).to_contain_text("Its KV was read by the")
    expect(story).to_contain_text("the read queues were")
    expect(story.get_by_role("region", name="Hops of its KV").locator("tbody tr").first).to_be_visible()
    shares = [float(text.split(" %")[0]) for text in story.locator(".shares b").all_inner_texts()]
    assert abs(sum(shares) - 100) < 2
    first = story.locator("h3").first.inner_text()
    story.get_by_role("button", name="Next").click()
    expect(story.locator("h3").first).not_to_have_text(first)
    expect(page.get_by_role("button", name="Next")).to_be_focused()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    story.get_by_role("button", name="Copy as JSON").click()
    expect(story.get_by_role("button", name="Copied")).to_be_visible()
    tale = json.loads(page.evaluate("() => navigator.clipboard.readText()"))
    assert tale["name"] == story.locator("h3").first.inner_text()
    assert tale["shares"]


def test_charts_follow_what_was_logged_and_share_the_timelines_axis(visit: Visit, dualpath: str, blink: str) -> None:
    page = opened(visit, dualpath)
    charts = page.locator("#plots figure")
    expect(charts.first.locator("canvas")).to_be_visible()
    for title in ("Storage reads by node", "Read queues"):
        expect(page.locator("#plots figcaption b").get_by_text(title, exact=True)).to_be_visible()
    page.get_by_text("Choose charts").click()
    page.get_by_role("checkbox", name="Gaps between tokens, ms").check()
    page.get_by_role("checkbox", name="Read queues, tokens").uncheck()
    page.wait_for_url("**charts=*")
    expect(page.locator('[data-chart="itl"]')).to_be_visible()
    expect(page.locator('[data-chart="queues"]')).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_text("Choose charts").click()
    # A stretch drawn on a chart is the timeline's, and the other way round; so is the cursor.
    over = page.locator('[data-chart="snic"] .u-over')
    wide = over.evaluate("node => node.clientWidth")
    over.hover(position={"x": wide * 0.25, "y": 20})
    box = over.bounding_box()
    assert box is not None
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=*")
    start, end = moment(page)
    assert 0 < start < end
    wide = over.evaluate("node => node.clientWidth")  # an axis with longer words is wider
    over.hover(position={"x": wide * 0.5, "y": 20})
    page.wait_for_function(
        "([middle, near]) => Math.abs((looplane.timeline.cursor ?? -1e18) - middle) < near",
        arg=[(start + end) / 2, (end - start) * 0.02],
    )
    page.locator("#tl-canvas").focus()
    page.keyboard.press("0")
    page.wait_for_function("() => looplane.timeline.view.start < 0")
    assert moment(page) != [start, end]
    page.wait_for_function("end => [...looplane.charts.shown.values()][0].plot.scales.x.max > end", arg=end)
    # The choice is in the link; a run that logs no reads offers none.
    page.reload()
    expect(page.locator('[data-chart="itl"]')).to_be_visible()
    other = opened(visit, blink)
    expect(other.locator("#plots")).to_contain_text("Batch")
    expect(other.locator("#charts-menu")).not_to_contain_text("Storage reads by node")


def test_trials_keep_the_view(visit: Visit, console: Console) -> None:
    run_id = "20261101-100003-7a1a15"
    record(console, run_id, "dualpath/small", "repeats=2")
    page = opened(visit, run_id, "?from=1000&to=90000&charts=tokens")
    rows = page.get_by_role("region", name="Trials of the run").locator("tbody tr")
    expect(rows).to_have_count(2)
    second = rows.nth(1).locator("a").inner_text()
    rows.nth(1).locator("a").click()
    page.wait_for_url(f"**trial={second}*")
    assert "from=1000" in page.url
    assert "charts=tokens" in page.url
    expect(rows.nth(1)).to_have_attribute("aria-current", "true")
    is_whole(page)
    assert [round(one / 1e3) for one in moment(page)] == [1000, 90000]


# --- how a run stands -----------------------------------------------------------------------------------------------


def test_a_run_that_broke_says_what_and_what_next(visit: Visit, broken: str) -> None:
    page = opened(visit, broken)
    expect(page.locator("#outcome")).to_have_text("Errored")
    expect(page.locator("#outcome-words")).to_contain_text("Node gpu0 exited with code 3")
    excerpt = page.locator("#excerpt")
    expect(excerpt).to_contain_text("gpu0: no such profile")
    expect(excerpt).to_contain_text("Clone and edit")


def test_a_run_is_watched_from_the_queue_to_its_end(page_as: Visit) -> None:
    """Started here, seen live, and all of its files and figures are there when it ends."""
    page = page_as("runner")
    launched(page)
    expect(page.locator("#outcome")).to_have_text("Passed")
    expect(page.locator("#figures")).to_contain_text("n = ")
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("#files")).to_contain_text("Report")
    expect(page.locator("#evidence")).to_contain_text("By each tool's definitions")
    with page.expect_download() as download:
        page.get_by_role("link", name="All as zip").click()
    assert Path(download.value.path()).read_bytes()[:2] == b"PK"


def launched(page: Page, changes: str = "") -> str:
    """Starts a simulation of blink/small; its id."""
    page.goto("/experiments/blink/small")
    page.get_by_label("Simulated clock").check()
    if changes:
        page.get_by_label("Changes").fill(changes)
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url("**/runs/*-*")
    return page.url.rsplit("/", 1)[1].split("?")[0]


def test_a_waiting_run_says_its_place_and_one_that_never_started_is_not_judged(page_as: Visit) -> None:
    """As many simulations as the machine takes are under way; the next one waits, and is cancelled before it starts."""
    page = page_as("runner")
    long = "workload.requests = 6000\nworkload.arrivals.rate_per_s = 40"
    running = [launched(page, long) for _ in range(SIMULATIONS_AT_ONCE)]
    expect(page.locator("#state")).to_contain_text("Running")
    launched(page)
    expect(page.locator("#state")).to_have_text("Queued")
    expect(page.locator("#state-words")).to_contain_text("in the queue")
    page.get_by_role("button", name="Cancel run…").click()
    page.get_by_role("button", name="Cancel run", exact=True).click()
    expect(page.locator("#outcome")).to_have_text("Cancelled")
    expect(page.locator("#fidelity")).to_have_text("Not judged")
    expect(page.locator("#fidelity-words")).to_contain_text("never reached the start line")
    expect(page.locator("#state-words")).to_have_text("It ended before it started.")
    for run_id in running:
        page.goto(f"/runs/{run_id}")
        page.get_by_role("button", name="Cancel run…").click()
        page.get_by_role("button", name="Cancel run", exact=True).click()
        expect(page.locator("#outcome")).to_have_text("Cancelled")


@pytest.mark.parametrize(("theme", "widths"), [("light", (390, 360)), ("dark", (1440,))])
def test_the_page_is_accessible_and_fits_every_width(
    visit: Visit, dualpath: str, theme: str, widths: tuple[int, ...]
) -> None:
    page = opened(visit, dualpath, theme=theme, width=widths[0])
    page.locator("#tl-canvas").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#story")).to_be_visible()
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)
    found = Axe().run(page)
    assert not found.response["violations"], found.generate_report()
