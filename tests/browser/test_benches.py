"""Benches in Chromium: take, extend and release a lease, the queue that refreshes itself, axe, keyboard and widths."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import fits

pytestmark = [pytest.mark.browser, pytest.mark.root]

Visit = Callable[..., Page]


def faults_of(page: Page) -> list[Any]:
    """What axe finds, in short."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found]


def bench_of(page: Page) -> str:
    """The name of this console's only bench, once its worker has reported."""
    link = page.locator(".one-bench h2 a").first
    expect(link).to_be_visible()
    return str(link.inner_text())


def test_a_runner_leases_extends_and_releases(page_as: Visit) -> None:
    page = page_as("runner", "/benches")
    name = bench_of(page)
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_label("For", exact=True).select_option("30")
    page.get_by_label("What for").fill("a class")
    page.get_by_role("button", name=f"Lease {name}").click()
    expect(page.get_by_role("status")).to_contain_text("is yours until")
    expect(page.locator("#now")).to_contain_text(re.compile("(30|29) min left"))
    seen = page_as("viewer", f"/benches/{name}")
    expect(seen.locator("#now")).to_contain_text("rune until")
    expect(seen.get_by_role("button", name="Release")).to_have_count(0)
    page.get_by_label("Extend by").select_option("15")
    page.get_by_role("button", name="Extend").click()
    expect(page.locator("#now")).to_contain_text(re.compile("4[543] min left"))
    page.get_by_role("button", name="Release").click()
    expect(page.locator("#now")).to_contain_text("to nobody")
    # The other page learns it by itself.
    expect(seen.locator("#now")).to_contain_text("to nobody")


def test_an_admin_closes_and_opens_by_keyboard(page_as: Visit) -> None:
    page = page_as("admin", "/benches")
    name = bench_of(page)
    page.goto(f"/benches/{name}")
    page.get_by_role("button", name="Close it").press("Enter")
    expect(page.locator("#now")).to_contain_text("an admin closed it")
    page.get_by_role("button", name="Open it").press("Enter")
    expect(page.get_by_role("button", name="Close it")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_and_widths(page_as: Visit, theme: str) -> None:
    page = page_as("admin", "/benches", theme=theme)
    name = bench_of(page)
    for path in ("/benches", f"/benches/{name}"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert faults_of(page) == []
        for width in (360, 390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            fits(page)
