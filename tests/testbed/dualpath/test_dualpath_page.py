"""The page of DualPath says what the code says: headings, hops, state diagrams, modules, parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.dualpath.decode_turn import DECODE_TABLE
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.prefill_turn import PREFILL_TABLE
from testbed.dualpath.read_paths import HOPS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "models" / "dualpath.md").read_text(encoding="utf-8")
HEADINGS = ["Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References"]


def test_it_has_the_house_headings_in_order() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == HEADINGS


def test_its_diagrams_are_drawn_from_the_tables() -> None:
    drawn = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
    assert drawn == [PREFILL_TABLE.mermaid(), DECODE_TABLE.mermaid()]


def test_its_hops_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
    assert rows == [(name, hop.what, hop.block, hop.repeats) for name, hop in HOPS.items()]


@pytest.mark.parametrize("name", re.findall(r"`(\w+)`", PAGE.split("## Parameters")[1].split("## Events")[0]))
def test_its_parameters_exist(name: str) -> None:
    assert name in DualPathParameters.__struct_fields__


@pytest.mark.parametrize("target", re.findall(r"\]\((\w+\.md)\)", PAGE))
def test_its_links_lead_somewhere(target: str) -> None:
    assert (ROOT / "docs" / "models" / target).is_file()
