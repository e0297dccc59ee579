"""The pages of the analysis and of the foils: house headings, links and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[3] / "docs" / "models"
OURS = ("bounds", "baselines", "dram_pool")
HEADINGS = ["Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References"]


@pytest.mark.parametrize("name", OURS)
def test_a_page_has_the_house_headings_and_names_what_exists(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    for target in re.findall(r"\]\(([\w./]+\.md)(?:#[\w-]+)?\)", text):
        assert (PAGES / target).exists(), target
    tests = {path.name for path in Path(__file__).resolve().parents[2].rglob("test_*.py")}
    assert set(re.findall(r"(test_\w+\.py)", text)) <= tests
