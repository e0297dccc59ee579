"""Account, people, groups, audit log and sharing in real Chromium: the flows, and each page at three widths."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, Console, Visit, fits

pytestmark = [pytest.mark.browser, pytest.mark.root]

OWN = "a quiet otter 7 times"


def sign_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in").click()


def secret_of(page: Page) -> str:
    found = page.locator("#secret").text_content()
    assert found
    return found


def test_somebody_new_from_invitation_to_closed_account(page_as: Visit, stranger: Visit, console: Console) -> None:
    """An admin makes somebody, who signs in, chooses a password, makes a token, and is closed with the page open."""
    admin = page_as("admin", "/people")
    admin.get_by_label("User name").fill("newton")
    admin.get_by_label("Role").last.select_option("runner")
    admin.get_by_label("class-a").check()
    admin.get_by_role("button", name="Create").click()
    expect(admin.get_by_role("heading", name="newton", exact=True)).to_be_visible()
    once = secret_of(admin)
    admin.reload()
    expect(admin.locator("#secret")).to_have_count(0)

    newton = stranger("/account/tokens")
    sign_in(newton, "newton", once)
    newton.get_by_label("New password", exact=True).fill(OWN)
    newton.get_by_label("New password again").fill(OWN)
    newton.get_by_role("button", name="Set password").click()
    newton.goto("/account/tokens")
    newton.get_by_label("What is it for?").fill("nightly")
    newton.get_by_label("run: also start").uncheck()
    newton.get_by_role("button", name="Make token").click()
    token = secret_of(newton)
    newton.reload()
    expect(newton.locator("#secret")).to_have_count(0)
    expect(newton.get_by_role("button", name="Revoke nightly")).to_have_count(1)
    asked = {"headers": {"Authorization": f"Bearer {token}"}}
    assert newton.context.request.get("/api/v1/me", **asked).json()["rights"] == ["read"]

    other = stranger("/login")
    sign_in(other, "newton", OWN)
    other.wait_for_url("**/experiments")
    newton.goto("/account")
    expect(newton.get_by_text("this one")).to_have_count(1)
    newton.get_by_role("button", name="End all others").click()
    expect(newton.get_by_role("status")).to_contain_text("1 other session ended")
    other.goto("/runs")
    expect(other.get_by_role("heading", name="Log in")).to_be_visible()

    admin.get_by_role("button", name="Close account").click()
    expect(admin.get_by_text("This account is closed")).to_be_visible()
    assert newton.context.request.get("/api/v1/me", **asked).status == 401
    newton.goto("/runs")
    sign_in(newton, "newton", OWN)
    expect(newton.get_by_role("alert")).to_be_visible()

    admin.goto("/audit?person=newton")
    for deed in ("password.choose", "token.create", "session.open"):
        expect(admin.get_by_role("cell", name=deed).first).to_be_visible()
    admin.goto("/audit?thing=newton&deed=user.close")
    expect(admin.get_by_role("cell", name="user.close")).to_have_count(1)


def test_an_instructor_takes_somebody_in_and_out(page_as: Visit, allowed_errors: list[str]) -> None:
    allowed_errors.append("status of 422")  # the name that nobody has
    page = page_as("instructor", "/groups")
    page.get_by_role("link", name="class-a").click()
    page.get_by_label("User name").fill("nobody-here")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("There is no user")).to_be_visible()
    page.get_by_label("User name").fill("otto")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Take out otto").click()
    expect(page.get_by_role("status")).to_contain_text("no longer")
    expect(page.get_by_role("button", name="Remove group")).to_have_count(0)


@pytest.fixture
def own_run(page_as: Visit) -> str:
    """A run of the runner's, made over the API with the page's own session."""
    page = page_as("runner", "/account")
    token = page.locator("input[name=csrfmiddlewaretoken]").first.input_value()
    answer = page.context.request.post(
        "/api/v1/runs",
        data={"experiment": "blink/small", "on": "sim"},
        headers={"X-CSRFToken": token, "Referer": page.url},
    )
    assert answer.status == 202, answer.text()
    return str(answer.json()["id"])


def test_a_run_is_shared_and_taken_back(page_as: Visit, own_run: str, allowed_errors: list[str]) -> None:
    allowed_errors.append("status of 404")
    viewer = page_as("viewer", f"/runs/{own_run}/share")
    expect(viewer.get_by_role("heading", name="There is nothing here")).to_be_visible()
    page = page_as("runner", f"/runs/{own_run}/share")
    expect(page.get_by_label("class-a")).to_be_hidden()
    page.get_by_label("Groups I choose").check()
    page.get_by_label("class-a").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    expect(page.get_by_role("definition").filter(has_text="vera")).to_be_visible()
    viewer.reload()
    expect(viewer.get_by_text("Only its owner or an admin can change that")).to_be_visible()
    expect(viewer.get_by_role("button", name="Save")).to_have_count(0)
    page.get_by_label("Only me").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("definition").filter(has_text="vera")).to_have_count(0)
    viewer.reload()
    expect(viewer.get_by_role("heading", name="There is nothing here")).to_be_visible()


PAGES = {
    "admin": ["/account", "/account/tokens", "/people", "/people/rune", "/groups", "/groups/1", "/audit"],
    "instructor": ["/groups/1"],
    "viewer": ["/account", "/groups"],
    "runner": ["/account/password"],
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible_and_fit(page_as: Visit, theme: str, own_run: str) -> None:
    """axe finds nothing, nothing is wider than the window, and every control is reached by the keyboard."""
    for role, addresses in {**PAGES, "runner": [*PAGES["runner"], f"/runs/{own_run}/share"]}.items():
        page = page_as(role, "/account", theme=theme)
        for address in addresses:
            for width in (1440, 390, 360):
                page.set_viewport_size({"width": width, "height": 800})
                page.goto(address)
                fits(page)
                if width != 390:
                    found = Axe().run(page).response["violations"]
                    words = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]
                    assert not words, f"{role} {address} at {width}: {words}"


def test_a_viewer_is_offered_nothing_that_would_be_refused(page_as: Visit) -> None:
    page = page_as("viewer", "/account")
    page.get_by_role("button", name=re.compile("Account of")).click()
    for words in ("People", "Audit", "Webhooks"):
        expect(page.get_by_role("link", name=words, exact=True)).to_have_count(0)
    page.goto("/account/tokens")
    expect(page.get_by_label("read: see what you may see")).to_be_checked()
    expect(page.get_by_label("run: also start")).to_have_count(0)


assert PASSWORD != OWN
