"""Every page of docs/models has the seven sections of house style 13, in one order and with something in each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "docs" / "models"
PAGES = sorted(path.name for path in MODELS.glob("*.md") if path.name != "README.md")
SECTIONS = ["Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References"]
"""What every page has; sections of a page's own may stand between them."""


def test_there_are_pages() -> None:
    assert len(PAGES) > 40


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_seven_sections_in_order(page: str) -> None:
    text = (MODELS / page).read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(found) == len(parts[1::2]), "a heading stands twice"
    assert [name for name in found if name in SECTIONS] == SECTIONS
    # A fenced block, as a diagram of states, is something too.
    bare = [name for name in SECTIONS if not found[name].strip() and f"## {name}\n\n```" not in text]
    assert bare == []
