from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from testbed.baselines.parameters import BasicParameters, RoundRobinParameters
from testbed.dualpath.parameters import DualPathParameters
from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.baseline_systems import BASELINES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models" / "baselines.md"


def differences(parameters: DualPathParameters, against: DualPathParameters) -> dict[str, str]:
    return {
        name: _shown(getattr(parameters, name))
        for name in against.__struct_fields__
        if getattr(parameters, name) != getattr(against, name)
    }


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)


@pytest.mark.parametrize("row", BASELINES, ids=lambda row: row.kind)
def test_the_page_says_what_a_system_changes(row) -> None:  # type: ignore[no-untyped-def]
    (line,) = re.findall(rf"^\| `{row.kind}` \|.*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    against = BasicParameters() if line.startswith("as `basic`") else DualPathParameters()
    assert dict(re.findall(r"`(\w+)` ([\w,.]+?)(?:[,;] |,? *$|,(?= `))", line)) == differences(
        row.parameters(), against
    )


def test_all_of_them_are_systems_with_dualpaths_machines() -> None:
    dualpath = SYSTEMS["dualpath"]
    for row in BASELINES:
        assert SYSTEMS[row.kind] is row
        assert row.assemble is dualpath.assemble
        assert row.plan_nodes is dualpath.plan_nodes
        assert issubclass(row.parameters, DualPathParameters)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("basic", {"read_path": "decode"}),
        ("oracle", {"read_path": "prefill"}),
        ("basic_layerwise", {"layerwise": False}),
    ],
)
def test_what_makes_a_system_what_it_is_cannot_be_changed(kind: str, wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(wrong))):
        msgspec.convert(wrong, SYSTEMS[kind].parameters)


def test_all_else_may_be_set() -> None:
    found = msgspec.convert({"copy": "copy_engine", "quota": 1_000}, BasicParameters)
    assert (found.copy, found.quota, found.read_path) == ("copy_engine", 1_000, "prefill")


def test_the_ablation_goes_step_by_step() -> None:
    basic, layerwise = BasicParameters(), SYSTEMS["basic_layerwise"].parameters()
    assert set(differences(layerwise, basic)) == {"layerwise"}
    assert set(differences(RoundRobinParameters(), layerwise)) == {"read_path"}
    assert set(differences(DualPathParameters(), RoundRobinParameters())) == {"read_path", "placement", "quota"}
