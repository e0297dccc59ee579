"""The lists of guides, models and decisions name every page that there is, once, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("folder", ["guide", "models", "decisions"])
def test_every_page_of_a_folder_is_in_its_list(folder: str) -> None:
    text = (DOCS / folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([^)/]+\.md)\)", text)
    assert sorted(listed) == sorted(page.name for page in (DOCS / folder).glob("*.md") if page.name != "README.md")


def test_every_experiment_on_blink_is_in_the_list_of_its_guide_once() -> None:
    text = (DOCS / "guide" / "blink-experiments.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(\.\./\.\./(fixtures/experiments/blink/[^)]+\.toml)\)", text)
    there = (DOCS.parent / "fixtures" / "experiments" / "blink").glob("*.toml")
    assert sorted(listed) == sorted(path.relative_to(DOCS.parent).as_posix() for path in there)
