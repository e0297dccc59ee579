"""The pages on metrics and fidelity say what the code does: their tables are held against the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.command.export import FORMATS
from testbed.metrics.fidelity import MEASURES
from testbed.metrics.latency import DEFINITIONS, PERCENTILES
from testbed.metrics.table import FOLDS
from testbed.metrics.thresholds import THRESHOLDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the table of `page` whose first heading is `head`."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {head} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_thresholds_of_the_page_are_those_of_the_code() -> None:
    assert table("models/fidelity.md", "Threshold") == [
        [limit.name, f"{limit.faithful:g}", f"{limit.invalid:g}", limit.unit, limit.reason]
        for limit in THRESHOLDS.values()
    ]
    text = (DOCS / "models/fidelity.md").read_text(encoding="utf-8")
    assert all(f"**{name}**" in text for name in MEASURES)


def test_the_definitions_of_the_page_are_those_of_the_code() -> None:
    assert table("models/metrics.md", "Tool") == [[row.name, *row.words, row.rule] for row in DEFINITIONS.values()]


def test_the_folds_of_the_page_are_those_of_the_table() -> None:
    named = [name for row in table("models/metrics.md", "Fold") for name in re.findall(r"`(\w+)`", row[0])]
    assert named == list(FOLDS)


def test_the_percentiles_of_the_page_take_as_many_values() -> None:
    text = (DOCS / "models/metrics.md").read_text(encoding="utf-8")
    for name, _, least in PERCENTILES:
        assert f"{name} takes {least:,}" in text


def test_the_guide_shows_every_export() -> None:
    text = (DOCS / "guide/reading-a-run.md").read_text(encoding="utf-8")
    for form in FORMATS:
        assert f"--format {form}" in text


@pytest.mark.parametrize("page", ["models/metrics.md", "models/fidelity.md", "guide/reading-a-run.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text(encoding="utf-8")):
        assert (DOCS / page).parent.joinpath(target).is_file(), target
