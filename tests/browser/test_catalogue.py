"""Finding one of many experiments, by keyboard and without scripts; what a viewer is told before filling in a form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, fits

pytestmark = [pytest.mark.browser, pytest.mark.root]

PAGES = Path(os.environ.get("LOOPLANE_PAGES", "."))
CARDS = ".cards .card"


def is_sound(page: Page, name: str) -> None:
    """No violation, nothing beside the window."""
    fits(page)
    assert not [(one["id"], one["nodes"][0]["html"][:200]) for one in Axe().run(page).response["violations"]]
    if str(PAGES) != ".":
        width = page.viewport_size["width"] if page.viewport_size else 0
        page.screenshot(path=PAGES / f"{name}-{width}.png", full_page=True)


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_one_of_many_experiments_is_found_by_keyboard(visit: Visit, theme: str, width: int) -> None:
    page = visit("/experiments", theme=theme, width=width)
    many = page.locator(CARDS).count()
    page.keyboard.press("/")
    field = page.get_by_role("search", name="Experiments").get_by_label("Search")
    expect(field).to_be_focused()
    is_sound(page, f"catalogue-{theme}")
    page.keyboard.type("pcie qos")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=pcie+qos**")
    expect(page.locator(CARDS)).to_have_count(1)
    page.get_by_role("search", name="Experiments").get_by_label("Search").fill("no such thing")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No experiment fits")).to_be_visible()
    is_sound(page, f"catalogue-empty-{theme}")
    page.get_by_role("link", name="Clear").press("Enter")
    expect(page.locator(CARDS)).to_have_count(many)


def test_without_scripts_too(page_as: Visit) -> None:
    page = page_as("viewer", "/experiments", java_script_enabled=False)
    page.get_by_label("Subject").select_option("failures")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**subject=failures**")
    expect(page.locator(CARDS)).to_have_count(2)
    page.get_by_role("navigation", name="Which experiments").get_by_role("link", name="Dualpath").click()
    expect(page.locator(CARDS)).to_have_count(1)
    expect(page.get_by_label("Subject")).to_have_value("failures")


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_a_viewer_is_told_first_that_they_cannot_start(page_as: Visit, theme: str, width: int) -> None:
    page = page_as("viewer", "/experiments/blink/small", theme=theme, width=width)
    note = page.get_by_text("your role is viewer")
    button = page.get_by_role("button", name="Start run")
    expect(note).to_be_in_viewport()
    expect(button).to_be_disabled()
    assert "your role is viewer" in page.locator(f"#{button.get_attribute('aria-describedby')}").inner_text()
    is_sound(page, f"viewer-{theme}")
