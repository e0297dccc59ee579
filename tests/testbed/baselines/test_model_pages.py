"""The pages of the analysis, the foils and the host-driven servers: headings, links, tests, diagrams, parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.baselines.host_driven_parameters import HostDrivenParameters
from testbed.baselines.host_driven_states import CORE_TABLE, STAGE_TABLE, WORKER_TABLE
from testbed.serving.engine_parameters import EngineParameters

PAGES = Path(__file__).resolve().parents[3] / "docs" / "models"
OURS = ("bounds", "baselines", "dram_pool", "host_driven", "vllm", "sglang", "tensorrt_llm", "placements")
HEADINGS = ["Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References"]


@pytest.mark.parametrize("name", OURS)
def test_a_page_has_the_house_headings_and_names_what_exists(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    for target in re.findall(r"\]\(([\w./]+\.md)(?:#[\w-]+)?\)", text):
        assert (PAGES / target).exists(), target
    tests = {path.name for path in Path(__file__).resolve().parents[2].rglob("test_*.py")}
    assert set(re.findall(r"(test_\w+\.py)", text)) <= tests


def test_the_diagrams_of_a_host_driven_server_are_drawn_from_their_tables() -> None:
    text = (PAGES / "host_driven.md").read_text(encoding="utf-8")
    tables = (STAGE_TABLE, CORE_TABLE, WORKER_TABLE)
    assert re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL) == [table.mermaid() for table in tables]


def test_every_parameter_of_a_host_driven_server_stands_on_its_page_with_its_default() -> None:
    text = (PAGES / "host_driven.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))
    defaults = HostDrivenParameters()
    own = [name for name in HostDrivenParameters.__struct_fields__ if name not in EngineParameters.__struct_fields__]
    shown = {name: getattr(defaults, name) for name in own}
    assert found == {
        name: f"{value:,}" if isinstance(value, int) else str(value).lower() for name, value in shown.items()
    }
