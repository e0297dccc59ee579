"""Every page for everybody who may see it: no error on its console, nothing that axe finds, no sideways scroll.

In light and dark, wide and on phones. `LOOPLANE_SCREENSHOTS=DIR` keeps a picture of each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, fits
from tests.browser.people import NAMES

pytestmark = [pytest.mark.browser, pytest.mark.root]

EVERYBODY = (
    "/experiments", "/experiments?group=here-now", "/experiments/blink/demo", "/experiments/dualpath/small",
    "/experiments/blink/serve", "/experiments/new", "/experiments/new?from={passed}",
    "/runs", "/runs?text=no+such+run", "/runs?tag=seed&sort=ended",
    "/runs/{passed}", "/runs/{failed}", "/runs/{dualpath}", "/runs/{queued}", "/runs/{errored}",
    "/compare", "/compare?run={passed}&run={failed}", "/benches",
    "/account", "/account/tokens", "/account/password", "/api/v1/docs",
)  # fmt: skip
"""Addresses; a run's is found by its name in `seeded`."""
FOR_ROLE: dict[str, tuple[str, ...]] = {
    "runner": ("/account/webhooks",),
    "instructor": ("/groups", "/groups/1", "/account/webhooks"),
    "admin": ("/people", "/people/rune", "/groups", "/groups/1", "/audit", "/account/webhooks"),
}
NOT_FOR: dict[str, tuple[str, ...]] = {
    "viewer": ("/people", "/people/rune", "/audit", "/audit.csv", "/runs/{secret}"),
    "runner": ("/people", "/audit", "/runs/{secret}", "/runs/{secret}/files", "/experiments/new?from={secret}"),
    "instructor": ("/people", "/audit", "/runs/{secret}"),
    "outsider": ("/people", "/audit", "/groups/1"),
}
PAGES = Path(os.environ.get("LOOPLANE_SCREENSHOTS", ""))


def addresses(role: str, runs: dict[str, str]) -> list[str]:
    return [address.format(**runs) for address in (*EVERYBODY, *FOR_ROLE.get(role, ()))]


def at_rest(page: Page, address: str) -> None:
    """Opens a page and waits until what it fetches by itself is there."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, f"{address}: {answer.status}"
    if address == "/experiments":
        expect(page.locator("#doctor")).to_contain_text("findings are fine")
    page.wait_for_timeout(50)


def faults_of(page: Page, address: str) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{address}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def keep(page: Page, role: str, theme: str, address: str) -> None:
    if str(PAGES) == ".":
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    width = page.viewport_size["width"] if page.viewport_size else 0
    name = re.sub(r"\W+", "-", re.sub(r"\d{8}-\d{6}-", "", address)).strip("-")
    page.screenshot(path=PAGES / f"{name}-{role}-{theme}-{width}.png", full_page=True)


@pytest.mark.parametrize(("role", "theme", "width"), [("admin", "light", 1440), ("runner", "dark", 390)])
def test_no_page_has_an_error_or_an_axe_violation(
    page_as: Visit, seeded: dict[str, str], role: str, theme: str, width: int
) -> None:
    page = page_as(role, "/runs", theme=theme, width=width)
    faults = []
    for address in addresses(role, seeded):
        at_rest(page, address)
        faults += faults_of(page, address)
        fits(page)
        keep(page, role, theme, address)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(("role", "theme", "width"), [("viewer", "light", 360), ("instructor", "dark", 1440)])
def test_every_page_of_the_other_roles_opens_without_an_error(
    page_as: Visit, seeded: dict[str, str], soak: bool, role: str, theme: str, width: int
) -> None:
    page = page_as(role, "/runs", theme=theme, width=width)
    faults = []
    for address in addresses(role, seeded):
        at_rest(page, address)
        fits(page)
        # What differs between roles is what is offered, so axe looks at all of it only when there is time.
        if soak or address in FOR_ROLE.get(role, ()):
            faults += faults_of(page, address)
        keep(page, role, theme, address)
    assert not faults, "\n".join(faults)


@pytest.mark.soak
@pytest.mark.timeout(3600)  # some six hundred pages
def test_all_roles_and_themes_and_widths(
    page_as: Visit, seeded: dict[str, str], soak: bool, soak_note: Callable[[str], None]
) -> None:
    """The whole table with --soak; else one corner of it, so that it is known to work."""
    faults: list[str] = []
    pages = 0
    for role in NAMES if soak else ["outsider"]:
        for theme in ("light", "dark") if soak else ("dark",):
            for width in (360, 390, 1440) if soak else (390,):
                page = page_as(role, "/runs", theme=theme, width=width)
                for address in addresses(role, seeded) if soak else ["/benches"]:
                    at_rest(page, address)
                    faults += faults_of(page, f"{role} {theme} {width} {address}")
                    keep(page, role, theme, address)
                    pages += 1
                page.context.close()
    soak_note(f"{pages} pages over roles, themes and widths: {len(faults)} axe violations")
    assert not faults, "\n".join(faults)


def test_what_is_not_theirs_is_not_there(
    page_as: Visit, stranger: Visit, seeded: dict[str, str], allowed_errors: list[str]
) -> None:
    allowed_errors.append("status of 40[34]")
    for role, forbidden in NOT_FOR.items():
        page = page_as(role, "/runs")
        expect(page.locator("#runs")).not_to_contain_text("What does nobody else know?") if role != "outsider" else None
        for address in forbidden:
            answer = page.goto(address.format(**seeded))
            assert answer is not None
            assert answer.status in (403, 404), f"{role} {address}: {answer.status}"
            assert "nobody else know" not in page.content()
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert faults_of(page, address) == []
    page = stranger("/login")
    for address in addresses("admin", seeded):
        page.goto(address)
        assert "/login" in page.url or "docs" in page.url, address


def test_the_navigation_offers_what_the_role_may_open(page_as: Visit) -> None:
    for role, offered in {"viewer": [], "instructor": ["Groups"], "admin": ["People", "Audit"]}.items():
        page = page_as(role, "/runs")
        nav = page.get_by_role("navigation", name="Main")
        words = [link.inner_text() for link in nav.get_by_role("link").all()]
        assert words == ["Experiments", "Runs", "Compare", "Benches", *offered]
        page.get_by_role("button", name=re.compile("^Account of")).click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        expect(page.locator("#account")).to_contain_text(role)


def test_the_menu_of_a_phone_works_by_keyboard(page_as: Visit) -> None:
    page = page_as("runner", "/runs", width=360, height=700)
    menu = page.get_by_role("button", name="Menu")
    nav = page.get_by_role("navigation", name="Main")
    expect(nav).to_be_hidden()
    menu.focus()
    page.keyboard.press("Enter")
    expect(nav).to_be_visible()
    page.keyboard.press("Escape")
    expect(nav).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(nav.get_by_role("link", name="Experiments")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/experiments")


# --- launching -------------------------------------------------------------------------------------------------------


def test_the_plan_and_the_faults_follow_what_is_typed(page_as: Visit) -> None:
    page = page_as("runner", "/experiments/blink/demo")
    plan = page.locator("#plan")
    expect(plan).to_contain_text("Requests")
    requests = page.get_by_label("Requests", exact=True).first
    requests.fill("16")
    expect(plan).to_contain_text("16 a trial")
    expect(plan).to_contain_text("--set workload.requests=16")
    requests.fill("0.5")
    expect(plan).to_contain_text("This cannot run yet")
    expect(requests).to_have_attribute("aria-invalid", "true")
    expect(page.locator('[data-faults="workload.requests"]')).to_contain_text("a whole number")
    requests.fill("16")
    expect(requests).not_to_have_attribute("aria-invalid", "true")
    page.locator('[name="kind:workload.arrivals"]').select_option("constant")
    expect(page.locator('[name="workload.arrivals[poisson].rate_per_s"]')).to_be_hidden()
    page.locator('[name="workload.arrivals[constant].rate_per_s"]').fill("40")
    expect(plan).to_contain_text("constant")
    page.get_by_label("Mininet").check()
    expect(plan).to_contain_text("here")
    expect(page.locator(".here")).to_contain_text("mulation")
    page.get_by_label("Simulated clock").check()
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url("**/runs/*-*")
    expect(page.locator("#outcome")).to_contain_text(re.compile("Passed|Failed"))


def test_settings_are_found_by_their_words(page_as: Visit) -> None:
    page = page_as("runner", "/experiments/blink/demo")
    page.locator("h1").click()
    page.keyboard.press("/")
    seek = page.get_by_label("Search settings")
    expect(seek).to_be_focused()
    seek.fill("prefix cache")
    expect(page.get_by_label("Prefix cache", exact=True)).to_be_visible()
    expect(page.get_by_label("Seed", exact=True)).to_be_hidden()
    expect(page.locator("#seek-count")).to_contain_text("found")
    seek.press("Escape")
    expect(page.locator(".sec").first).to_be_visible()


def test_a_run_is_launched_without_any_script(page_as: Visit) -> None:
    page = page_as("runner", "/experiments/blink/small", java_script_enabled=False)
    page.locator("#s-system-blink, .sec").nth(1).locator("summary").first.click()
    page.get_by_label("Tags").fill("no-script")
    page.get_by_role("button", name="Start run").click()
    expect(page).to_have_url(re.compile(r"/runs/\d{8}-\d{6}-[0-9a-f]{6}$"))


def test_a_form_becomes_a_file_and_back(page_as: Visit) -> None:
    page = page_as("runner", "/experiments/blink/demo")
    page.get_by_label("Requests", exact=True).first.fill("7")
    page.get_by_role("button", name="As TOML").click()
    file = page.get_by_role("textbox", name="Experiment file")
    expect(file).to_have_value(re.compile("requests = 7"))
    page.get_by_role("button", name="As a form").click()
    expect(page.get_by_label("Requests", exact=True).first).to_have_value("7")
    page.get_by_text("The same run elsewhere").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as TOML").click()
    assert "requests = 7" in Path(download.value.path()).read_text()


# --- the list --------------------------------------------------------------------------------------------------------


def test_runs_are_chosen_by_keyboard_and_compared(page_as: Visit, seeded: dict[str, str], soak: bool) -> None:
    page = page_as("runner", "/runs?tag=seed")
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    expect(page.locator("#bulk-count")).to_have_text("2 runs chosen")
    for _ in range(2):  # by the second answer the first is on the page
        with page.expect_response(re.compile("/runs/table")):
            pass
    expect(page.locator("#bulk-count")).to_have_text("2 runs chosen")
    expect(page.locator("input[name=run]:checked")).to_have_count(2)
    page.keyboard.press("c")
    page.wait_for_url("**/compare?run=**")
    assert {run in page.url for run in (seeded["passed"], seeded["dualpath"])} == {True}


def test_tags_are_changed_from_the_list(page_as: Visit, seeded: dict[str, str]) -> None:
    page = page_as("runner", f"/runs?text={seeded['failed']}")
    page.get_by_role("checkbox", name=re.compile("^Choose run")).check()
    page.get_by_label("Tags").fill("looked-at")
    page.get_by_role("button", name="Add tag").click()
    expect(page.get_by_role("status")).to_contain_text("Tags of 1 run changed")
    page.get_by_role("link", name="looked-at").click()
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Filter")).to_be_visible()
