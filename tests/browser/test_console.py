"""The console as a person meets it, in real Chromium on the real stack: supervisor, runnerd, web, worker, Mininet."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from testbed.events.client_events import TokenReceived
from testbed.events.log import read_log
from testbed.events.ordering import merge
from tests.browser.conftest import PASSWORD, Console, Visit, fits, is_whole

pytestmark = [pytest.mark.browser, pytest.mark.root]

LONG = "workload.requests = 6000\nworkload.arrivals.rate_per_s = 40"
DEMO_S = 240_000
"""Milliseconds for the demonstration on a machine that others use too."""
SECOND = 1_000_000_000


def start(page: Page, experiment: str, *, on: str = "sim", changes: str = "") -> str:
    """Starts a run from an experiment's page; its id."""
    page.goto(f"/experiments/{experiment}")
    page.get_by_label("Mininet" if on == "mininet" else "Simulated clock").check()
    page.get_by_label("Changes").fill(changes)
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url("**/runs/*-*")
    return page.url.rsplit("/", 1)[1].split("?")[0]


def known(page: Page, expression: str) -> Any:
    """Something that the page's script knows."""
    return page.evaluate(
        f"() => {{ const {{ model, timeline, stream, verdict }} = window.looplane; return {expression}; }}"
    )


@pytest.fixture
def finished(visit: Visit, console: Console) -> Callable[[], tuple[Page, str]]:
    """A page of a run that has passed: simulated once for all tests of this module."""

    def open_page(**options: Any) -> tuple[Page, str]:
        folders = sorted(path for path in (console.state / "runs").glob("*") if (path / "browser-test").exists())
        if not folders:
            page = visit("/experiments")
            run_id = start(page, "blink/small", changes="workload.requests = 8")
            expect(page.locator("#outcome")).to_have_text("Passed")
            (console.folder(run_id) / "browser-test").touch()
            page.context.close()
            folders = [console.folder(run_id)]
        page = visit(f"/runs/{folders[0].name}", **options)
        expect(page.locator("#outcome")).to_have_text("Passed")
        is_whole(page)
        expect(page.locator("#figures")).to_contain_text("n = 8")
        return page, folders[0].name

    return open_page


# --- in and out ------------------------------------------------------------------------------------------------------


def test_a_stranger_logs_in_with_the_printed_password_and_chooses_their_own(stranger: Visit, console: Console) -> None:
    page = stranger("/runs")
    page.get_by_label("Username").fill(console.user)
    page.get_by_label("Password", exact=True).fill("not it")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    page.get_by_label("Username").fill(console.user)
    page.get_by_label("Password", exact=True).fill(console.password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Choose a password")).to_be_visible()
    page.goto("/experiments")  # no way around it
    expect(page.get_by_role("heading", name="Choose a password")).to_be_visible()
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password again").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()


# --- a run, live -----------------------------------------------------------------------------------------------------


def received_by(folder: Path, moment_ns: float) -> int:
    """Tokens that had reached clients by a moment of this machine's monotonic clock, by the log itself."""
    start_word = json.loads((folder / "control" / "start.json").read_text())
    epoch, dilation = start_word["epoch_monotonic_ns"], start_word["dilation"]
    return sum(
        record.event.count
        for record in read_log(folder / "events" / "client0.jsonl")
        if isinstance(record.event, TokenReceived) and epoch + record.t * dilation <= moment_ns
    )


def test_the_demo_on_mininet_is_seen_live_and_survives_a_killed_server(
    visit: Visit, console: Console, allowed_errors: list[str]
) -> None:
    """Launches the demonstration, sees tokens within two seconds of their time, through a killed web process."""
    allowed_errors += ["WebSocket connection .* failed", "Failed to load resource: net::ERR", "htmx:error"]
    page = visit("/experiments")
    run_id = start(page, "blink/demo", on="mininet", changes='nodes = "namespace"')
    folder = console.folder(run_id)
    page.wait_for_function("() => window.looplane.model.exchanges.tokens > 0", timeout=DEMO_S)
    expect(page.locator("#state")).to_contain_text("Running")
    killed = False
    on_time: list[bool] = []
    while known(page, "verdict.run.state") == "running" and not known(page, "model.stage").startswith("finalising"):
        asked = time.monotonic_ns()
        tokens = known(page, "model.exchanges.tokens")
        if known(page, "verdict.stream.state") == "live":
            on_time.append(tokens >= received_by(folder, asked - 2 * SECOND))
        if len(on_time) == 3 and not killed:
            console.kill_web()
            killed = True
            expect(page.locator("#state-words")).to_contain_text("reconnecting")
            page.wait_for_function("() => ['live', 'ended'].includes(window.looplane.verdict.stream.state)")
            page.wait_for_timeout(1_500)
        page.wait_for_timeout(400)
    assert len(on_time) >= 3
    # On the page two seconds after its time at the latest. The machine may stand still for a moment; a page that
    # gathers is late whenever one looks.
    assert sum(on_time) > len(on_time) / 2, on_time
    assert killed
    expect(page.locator("#state")).to_contain_text("Finished")
    is_whole(page)
    # Nothing is missing and nothing doubled, although the stream was cut.
    assert known(page, "model.events") == sum(1 for _ in merge(folder / "events"))
    assert known(page, "model.order.lanes.size") == len(list((folder / "events").glob("*.jsonl")))
    assert known(page, "stream.bad") == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert known(page, "model.exchanges.completed") == summary["systems"]["blink"]["requests"]["completed"] == 64
    # How faithful it was depends on who else uses this machine; that the page says it does not.
    verdict = summary["fidelity"]["verdict"]
    expect(page.locator("#fidelity")).to_contain_text(verdict.capitalize())
    expect(page.locator("#port")).to_contain_text("cnic0")


def test_a_second_run_is_cancelled_and_the_next_one_runs(visit: Visit, console: Console) -> None:
    page = visit("/experiments")
    start(page, "blink/small", changes=LONG)
    expect(page.locator("#state")).to_contain_text("Running")
    page.get_by_role("button", name="Cancel run…").click()
    expect(page.get_by_role("dialog", name="Cancel this run?")).to_be_visible()
    page.get_by_role("button", name="Keep it running").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Cancel run…").click()
    page.get_by_role("button", name="Cancel run", exact=True).click()
    expect(page.locator("#outcome")).to_have_text("Cancelled")
    expect(page.get_by_role("button", name="Cancel run…")).to_have_count(0)
    start(page, "blink/small")
    expect(page.locator("#outcome")).to_have_text("Passed")


def test_a_cancelled_emulation_leaves_nothing_and_the_next_one_starts(visit: Visit, console: Console) -> None:
    page = visit("/experiments")
    start(page, "blink/demo", on="mininet", changes='nodes = "namespace"')
    page.wait_for_function("() => window.looplane.model.exchanges.tokens > 0", timeout=DEMO_S)
    page.get_by_role("button", name="Cancel run…").click()
    page.get_by_role("button", name="Cancel run", exact=True).click()
    # It may be over by the time that the page is there again.
    expect(page.locator("#state")).to_contain_text(re.compile("Cancelling|Finished"))
    expect(page.locator("#outcome")).to_have_text("Cancelled")
    start(page, "blink/small", on="mininet", changes='nodes = "namespace"')
    expect(page.locator("#state")).to_contain_text("Finished", timeout=DEMO_S)
    is_whole(page)
    assert known(page, "model.exchanges.completed") == 8


def test_closing_every_tab_does_not_end_a_run(visit: Visit, console: Console) -> None:
    page = visit("/experiments")
    run_id = start(page, "blink/small", changes="workload.requests = 800")
    page.context.close()
    again = visit(f"/runs/{run_id}")
    expect(again.locator("#outcome")).to_contain_text("Failed")  # the file expects eight requests
    expect(again.locator("#figures")).to_contain_text("n = 800")


def test_a_run_of_agents_shows_turns_by_stage_two_fabrics_and_no_ring(visit: Visit, console: Console) -> None:
    page = visit("/experiments")
    run_id = start(page, "dualpath/small")
    expect(page.locator("#outcome")).to_have_text("Passed")
    is_whole(page)
    summary = json.loads((console.folder(run_id) / "summary.json").read_text())["systems"]["dualpath"]
    assert known(page, "model.exchanges.completed") == summary["requests"]["completed"] > 0
    assert known(page, "model.turns.byName.size") == sum(summary["paths"]["turns"].values())
    expect(page.locator("#ring-panel")).to_be_hidden()
    for node in ("sched0", "pe0", "de0", "storage0"):
        expect(page.locator("#topo")).to_contain_text(node)
    page.locator("#tl-canvas").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    story = page.locator("#story")
    expect(story).to_contain_text("Stages of the turn")
    expect(story).to_contain_text("Placed on pe0.")
    expect(story).not_to_contain_text("Markov")


# --- what a finished run says ----------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_report(finished: Callable[..., tuple[Page, str]], console: Console) -> None:
    page, run_id = finished()
    blink = json.loads((console.folder(run_id) / "summary.json").read_text())["systems"]["blink"]
    shown = page.locator("#figures")
    for metric in ("ttft_ms", "tpot_ms", "itl_ms"):
        value = blink[metric]["p50"]
        digits = 0 if value >= 100 else 1 if value >= 10 else 2
        expect(shown).to_contain_text(f"{value:.{digits}f}")
    expect(shown).to_contain_text(f"n = {blink['itl_ms']['n']}")
    expect(page.locator("#outcome-words")).to_contain_text("2 of 2 expectations held")
    expect(page.locator("#files")).to_contain_text("Report")
    with page.expect_download() as download:
        page.get_by_role("link", name="Trace for ui.perfetto.dev").click()
    assert json.loads(Path(download.value.path()).read_text())["traceEvents"]


def test_a_request_tells_its_story_by_keyboard_alone(finished: Callable[..., tuple[Page, str]]) -> None:
    page, _ = finished()
    page.locator("#tl-canvas").focus()
    page.keyboard.press("j")
    expect(page.locator("#sel")).to_contain_text("request-00000")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#sel")).to_contain_text("request-00001")
    page.keyboard.press("Enter")
    story = page.locator("#story")
    expect(story.locator("tbody tr")).to_have_count(13)
    expect(story).to_contain_text("prompt lies in GPU memory")
    expect(story.locator(".said")).not_to_be_empty()
    said = story.locator(".said").inner_text()
    assert said.strip() in known(page, "[...model.tracks.tracks.values()][1].text.map(([, text]) => text).join('')")
    page.wait_for_url("**request=r2**")
    before = known(page, "timeline.view.end - timeline.view.start")
    page.keyboard.press("+")
    page.wait_for_function("span => looplane.timeline.view.end - looplane.timeline.view.start < span", arg=before)
    page.keyboard.press("ArrowRight")
    start_ns = known(page, "timeline.view.start")
    page.keyboard.press("0")
    page.wait_for_function("start => looplane.timeline.view.start < start", arg=start_ns)
    page.keyboard.press("Escape")
    expect(page.locator("#sel")).to_contain_text("Choose a request")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()


def test_a_link_keeps_request_and_view(finished: Callable[..., tuple[Page, str]], visit: Visit) -> None:
    page, _ = finished()
    page.locator("#tl-canvas").click(position={"x": 600, "y": 24 + 16 * 3 + 8})
    expect(page.locator("#sel")).to_contain_text("request-00003")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(
        "() => +new URL(location.href).searchParams.get('from') === Math.round(looplane.timeline.view.start / 1e3)"
    )
    view = known(page, "[timeline.view.start, timeline.view.end]")
    other = visit(page.url.split("/", 3)[3].join(["/", ""]))
    expect(other.locator("#sel")).to_contain_text("request-00003")
    is_whole(other)
    assert known(other, "[timeline.view.start, timeline.view.end]") == pytest.approx(view, abs=2000)


def test_hovering_names_the_token_under_the_pointer(finished: Callable[..., tuple[Page, str]]) -> None:
    page, _ = finished()
    x = known(page, "timeline.xOf(timeline.lanes()[0].tokens[1])")
    page.locator("#tl-canvas").hover(position={"x": x + 1, "y": 24 + 8})
    expect(page.locator("#tl-tip")).to_contain_text("request-00000 at")
    expect(page.locator("#tl-tip")).to_contain_text("token")


def test_the_ring_and_its_legend(finished: Callable[..., tuple[Page, str]]) -> None:
    page, _ = finished()
    legend = page.get_by_role("group", name="Show only slots in this state")
    expect(legend).to_contain_text("decode_processing")
    expect(page.locator("#ring-sub")).to_contain_text("at the fullest")
    taken = known(page, "model.ring.fullest.taken")
    assert 1 <= taken <= 8
    expect(legend.get_by_role("button", name="empty")).to_contain_text(f"{4096 - taken:,}")
    legend.get_by_role("button", name="decode_paused").click()
    expect(legend.get_by_role("button", name="decode_paused")).to_have_attribute("aria-pressed", "true")
    x = known(page, "timeline.xOf(timeline.lanes()[0].tokens[0] - 1e6)")
    page.locator("#tl-canvas").hover(position={"x": x, "y": 60})
    expect(page.locator("#ring-sub")).to_contain_text(" at 0.")
    expect(page.locator("#ring")).to_have_attribute("aria-label", re.compile("^Ring of 4,096 slots: .* 1 prefill_proc"))


def test_the_log_by_level_and_text(finished: Callable[..., tuple[Page, str]]) -> None:
    page, _ = finished()
    log = page.locator("#log")
    expect(log).to_contain_text("request.finished")
    expect(log).not_to_contain_text("slot.moved")
    page.get_by_label("Level").select_option("everything")
    page.get_by_label("Search the whole log").fill("slot.moved")
    expect(log.locator("li").first).to_contain_text("slot.moved")
    page.get_by_label("Search the whole log").fill("no such line")
    expect(log).to_contain_text("No line matches.")


def test_a_question_with_markup_is_text_everywhere(visit: Visit) -> None:
    markup = "<img src=x onerror=alert(1)>"
    page = visit("/experiments/new")
    text = page.get_by_role("textbox", name="Experiment file").input_value()
    text = text.replace('question = "What happens', f'question = "{markup} What happens').replace(
        "requests = 32", "requests = 2"
    )
    page.get_by_role("textbox", name="Experiment file").fill(text)
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(markup)
    expect(page.locator("#state")).to_contain_text("Finished")
    page.goto("/runs")
    expect(page.locator("#runs")).to_contain_text(markup)
    expect(page.locator("img")).to_have_count(0)


def test_faults_of_a_file_stand_beside_it(visit: Visit, allowed_errors: list[str]) -> None:
    allowed_errors.append("status of 422")  # the browser's own note about the answer to a faulty form
    page = visit("/experiments/new")
    page.get_by_role("textbox", name="Experiment file").fill('name = "x"\nrequests = 3\n')
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was started")
    expect(page.locator("#main")).to_contain_text("no such key")
    expect(page.get_by_role("textbox", name="Experiment file")).to_have_value('name = "x"\nrequests = 3\n')


def test_the_doctor_speaks_through_the_privileged_runner(visit: Visit) -> None:
    page = visit("/experiments")
    expect(page.locator("#doctor")).to_contain_text("findings are fine")
    expect(page.locator("#doctor")).not_to_contain_text("No privileged runner")


# --- for everybody, on every screen ----------------------------------------------------------------------------------

ADDRESSES = [
    "/experiments",
    "/experiments/blink/demo",
    "/experiments/new",
    "/runs",
    "/account/tokens",
    "/account/password",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(
    visit: Visit, stranger: Visit, finished: Callable[..., tuple[Page, str]], theme: str
) -> None:
    faults = []
    page, _ = finished(theme=theme)
    page.locator("#tl-canvas").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    pages = [page, stranger("/login", theme=theme)]
    for address in ADDRESSES:
        pages.append(visit(address, theme=theme))
        if address == "/experiments":
            expect(pages[-1].locator("#doctor")).to_contain_text("findings are fine")
    for one in pages:
        results = Axe().run(one)
        faults += [
            f"{one.url}: {fault['id']}: {fault['nodes'][0]['html'][:200]}" for fault in results.response["violations"]
        ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1440, 2200])
def test_no_page_scrolls_sideways(visit: Visit, finished: Callable[..., tuple[Page, str]], width: int) -> None:
    page, run_id = finished(width=width)
    for address in (f"/runs/{run_id}", *ADDRESSES):
        page.goto(address)
        page.wait_for_timeout(200)
        fits(page)


def test_nothing_moves_under_reduced_motion(visit: Visit) -> None:
    page = visit("/experiments")
    start(page, "blink/small", changes=LONG)
    # The state is swapped while the run goes on: a style read once may be that of a mark already taken off the page.
    expect(page.locator("#state svg.live")).to_have_css("animation-name", "none")
    page.get_by_role("button", name="Cancel run…").click()
    page.get_by_role("button", name="Cancel run", exact=True).click()
    expect(page.locator("#outcome")).to_have_text("Cancelled")


def test_the_theme_is_the_systems_until_one_is_chosen(visit: Visit) -> None:
    page = visit("/runs", theme="dark")
    expect(page.locator("html")).to_contain_class("dark")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("html")).not_to_contain_class("dark")
    page.goto("/experiments")
    expect(page.locator("html")).not_to_contain_class("dark")
