"""The model pages say what the code says: headings, state diagrams, parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testbed.blink.collectives import TensorParallel
from testbed.blink.expert_offload import ExpertOffload
from testbed.blink.parameters import BlinkParameters
from testbed.blink.request_tracker import STAGE_TABLE
from testbed.blink.scheduler_states import SCHEDULER_TABLE
from testbed.blink.slots import SLOT_TABLE
from testbed.blink.speculation import Speculation
from testbed.blink.watchdog import WATCH_TABLE
from testbed.events.schema import BLINK_STEPS
from testbed.serving.transitions import Transitions

PAGES = Path(__file__).resolve().parents[3] / "docs" / "models"
OURS = (
    "blink", "slots", "persistent_scheduler", "launch_window", "device", "graph_cache", "cost_model", "text_model",
    "front_end", "modelled_steps", "recovery",
)  # fmt: skip
HEADINGS = ["Purpose", "Scope and limitations", "States", "Parameters", "Events", "Validation", "References"]


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OURS)
def test_a_page_has_the_house_headings_in_order(name: str) -> None:
    assert re.findall(r"^## (.+)$", page(name), re.MULTILINE) == HEADINGS


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("slots", SLOT_TABLE),
        ("persistent_scheduler", SCHEDULER_TABLE),
        ("front_end", STAGE_TABLE),
        ("recovery", WATCH_TABLE),
    ],
)
def test_a_diagram_is_drawn_from_its_table(name: str, table: Transitions[Any, Any]) -> None:
    assert re.findall(r"```mermaid\n(.*?)```", page(name), re.DOTALL) == [table.mermaid()]


def test_every_parameter_stands_on_one_page_with_its_default() -> None:
    found = re.findall(r"^\| `(\w+)` \| (\S+) \|", "".join(map(page, OURS)), re.MULTILINE)
    defaults = BlinkParameters()
    expected = {}
    for name in BlinkParameters.__struct_fields__:
        value = getattr(defaults, name)
        shown = str(value).lower() if value is None or isinstance(value, bool) else value
        expected[name] = f"{shown:,}" if isinstance(shown, int) else str(shown)
    assert sorted(found) == sorted(expected.items())


def test_the_table_of_steps_names_every_event() -> None:
    steps = page("blink").split("## Scope")[0]
    for kind in BLINK_STEPS.values():
        assert f"`{kind.__struct_config__.tag}`" in steps


@pytest.mark.parametrize("name", OURS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([\w./]+\.md)\)", page(name)):
        assert (PAGES / target).exists(), target


@pytest.mark.parametrize("name", OURS)
def test_named_tests_exist(name: str) -> None:
    tests = {path.name for path in Path(__file__).resolve().parents[2].rglob("test_*.py")}
    assert set(re.findall(r"(test_\w+\.py)", page(name))) <= tests


@pytest.mark.parametrize(
    ("name", "switch"),
    [("speculation", Speculation), ("tensor_parallel", TensorParallel), ("expert_offload", ExpertOffload)],
)
def test_every_field_of_a_switch_stands_on_its_page_with_its_default(name: str, switch: type[Any]) -> None:
    found = re.findall(rf"^\| `{name}\.(\w+)` \| (\S+) \|", page("modelled_steps"), re.MULTILINE)
    made = switch()
    values = {field: getattr(made, field) for field in switch.__struct_fields__}
    assert found == [(key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in values.items()]
