"""A run with two GPUs in real Chromium: each ring has a map and its name, by pointer, keyboard and table. The run is
recorded by the command into the console's folder and taken up by it.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Console, Visit, fits
from tests.browser.test_run_page import opened, record

pytestmark = [pytest.mark.browser, pytest.mark.root]

RUN = "20261101-100003-219500"


@pytest.fixture
def two_rings(console: Console) -> str:
    record(console, RUN, "blink/small", "systems.blink.gpus=2")
    return RUN


def drawn(visit: Visit, run: str, **options: Any) -> Page:
    """The run's page, with the maps of both rings on it."""
    page = opened(visit, run, **options)
    expect(page.locator(".ringm canvas")).to_have_count(2)
    return page


def test_two_gpus_have_a_map_each_and_one_legend(visit: Visit, two_rings: str) -> None:
    page = drawn(visit, two_rings)
    expect(page.get_by_role("heading", name="Slot rings")).to_be_visible()
    expect(page.locator("#ring-sub")).to_contain_text("4,096 slots in each of 2 GPUs, at the fullest")
    taken = page.evaluate("() => looplane.model.ring.fullest.taken")
    by_ring = page.evaluate("""() => { const { ring } = looplane.model; return ring.names().map((name) =>
        [...ring.at(name, ring.fullest.t).values()].filter(({ state }) => state !== "empty").length); }""")
    assert sum(by_ring) == taken > max(by_ring)
    for place, held in enumerate(by_ring):
        expect(page.locator(".ringn").nth(place)).to_have_text(re.compile(f"^gpu{place}{held} slots? taken$"))
        label = re.compile(f"^Ring of gpu{place}, 4,096 slots: {4096 - held:,} empty")
        expect(page.locator(".ringm canvas").nth(place)).to_have_attribute("aria-label", label)
    legend = page.get_by_role("group", name="Show only slots in this state")
    expect(legend.get_by_role("button", name="empty")).to_contain_text(f"{2 * 4096 - taken:,}")
    found = Axe().run(page, "#ring-panel")
    assert found.violations_count == 0, found.generate_report()


def test_slots_by_keyboard_and_as_a_table(visit: Visit, two_rings: str) -> None:
    page = drawn(visit, two_rings)
    slot, name = page.evaluate("""() => { const { ring, tracks } = looplane.model;
        const [slot, { request }] = [...ring.at("gpu1", ring.fullest.t)].filter(([, { state }]) => state !== "empty")
            .sort((a, b) => a[0] - b[0])[0];
        return [slot, tracks.tracks.get(request).name]; }""")
    row = page.locator("#ring-slots tbody tr", has_text=name)
    expect(row.locator("td, th").nth(0)).to_have_text("gpu1")
    expect(row.locator("td, th").nth(1)).to_have_text(str(slot))
    page.locator(".ringm canvas").nth(1).focus()
    page.keyboard.press("PageDown")
    expect(page.locator("#ring-said")).to_have_text(re.compile(f"^slot {slot} of gpu1: .*, {name}, since"))
    page.keyboard.press("Enter")
    expect(page.locator("#sel")).to_contain_text(f"{name} in slot {slot} of gpu1")
    page.keyboard.press("Escape")
    expect(page.locator("#ring-tip")).to_be_hidden()


def test_two_maps_fit_a_narrow_screen(visit: Visit, two_rings: str) -> None:
    page = drawn(visit, two_rings, width=390, theme="dark")
    fits(page)
    for place in range(2):
        box = page.locator(".ringm canvas").nth(place).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
