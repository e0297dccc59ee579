"""`mn --custom`: the file is executed as Mininet executes it, and a plan's shape comes out."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import bench_plans
import pytest

from testbed.experiment.plan import Plan

CUSTOM = Path(__file__).resolve().parents[2] / "topologies" / "custom.py"


def topos() -> Any:
    """What `mn` finds after executing the file (mininet's bin/mn, parseCustomFile)."""
    customs: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(CUSTOM.read_text(), str(CUSTOM), "exec"), customs, customs)
    return customs["topos"]


def test_without_a_plan_it_is_the_demos_shape() -> None:
    topo = topos()["looplane"]()
    assert sorted(topo.switches()) == ["compute", "front"]
    assert sorted(topo.hosts()) == ["client0", "dpu0", "gpu0", "host0"]
    assert sorted(map(tuple, topo.links())) == sorted(
        [("client0", "front"), ("dpu0", "front"), ("dpu0", "compute"), ("gpu0", "compute")]
    )


def test_numbers_come_as_mininet_parses_them() -> None:
    topo = topos()["looplane"](clients=2, gpus=3)
    assert len(topo.hosts()) == 2 + 1 + 3 + 1


def test_a_plan_gives_its_names_and_addresses(tmp_path: Path, demo_plan: Plan) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(bench_plans.written(demo_plan))
    topo = topos()["looplane"](plan=str(path))
    links = {(a, b): facts for a, b, facts in topo.links(withInfo=True)}
    facts = links["dpu0", "compute"]
    assert (facts["intfName1"], facts["params1"]) == ("cnic0", {"ip": "10.61.0.2/24"})
    assert topo.nodeInfo("dpu0")["ip"] == "10.60.0.2/24"


def test_the_systems_python_takes_it_with_debians_mininet() -> None:
    load = f"c = {{}}; exec(compile(open({str(CUSTOM)!r}).read(), 'x', 'exec'), c, c)"
    program = load + "; print(c['topos']['looplane']().hosts())"
    probe = subprocess.run(["/usr/bin/python3", "-c", "import mininet.topo"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("Debian's mininet is not installed (apt-get install mininet)")
    done = subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert "client0" in done.stdout
