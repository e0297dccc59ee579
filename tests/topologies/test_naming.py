"""Names on the host: short enough, distinct, labelled; what no host could carry is refused with its path."""

from __future__ import annotations

import bench_plans
import pytest

from testbed.experiment.plan import NodePlan, Plan
from topologies.naming import INTERFACE_LIMIT, BadName, Names, is_label


def test_a_neighbours_container_is_no_nodes(demo_plan: Plan) -> None:
    names = Names(demo_plan)
    assert names.neighbour("zip", 0) == f"looplane-{demo_plan.label}--zip-0"
    assert names.neighbour("zip", 0).startswith(names.container(""))
    assert names.neighbour_folder("zip", 0) != names.neighbour_folder("zip", 1)


def test_nodes_that_begin_alike_get_different_interfaces(label: str) -> None:
    nodes = tuple(
        NodePlan(name=f"a-very-long-node-name-{end}", role="gpu", cores="hardware", memory_mib=64,
                 ports=(bench_plans.port("cnic0", "compute", number),))
        for number, end in enumerate(("x", "y"), 1)
    )  # fmt: skip
    names = Names(bench_plans.plan(label, nodes))
    ports = [names.switch_port(node.name, "cnic0") for node in nodes]
    assert len(set(ports)) == 2
    assert all(label in port and len(port) <= INTERFACE_LIMIT for port in ports)


def test_a_thousand_ports_still_fit(label: str) -> None:
    nodes = tuple(
        NodePlan(
            name=f"gpu{n}", role="gpu", cores="hardware", memory_mib=64,
            ports=(bench_plans.port("cnic0", "compute", n),),
        )
        for n in range(1152)
    )
    names = Names(bench_plans.plan(label, nodes))
    assert max(len(names.switch_port(node.name, "cnic0")) for node in nodes) <= INTERFACE_LIMIT


@pytest.mark.parametrize("name", ["h1-1", "d1.1", "a_b", "0"])
def test_odd_but_sound_names_are_taken(label: str, name: str) -> None:
    node = NodePlan(name=name, role="host", cores="host", memory_mib=64)
    names = Names(bench_plans.plan(label, (node,)))
    assert names.container(name) == f"looplane-{label}-{name}"
    assert names.host(name) != names.switch(name)


@pytest.mark.parametrize("name", ["", "-h", "a/b", "a b", "x" * 64, "bench", "ü", "a:b", "../x"])
def test_names_that_the_host_cannot_carry_are_refused(label: str, name: str) -> None:
    node = NodePlan(name=name, role="host", cores="host", memory_mib=64)
    with pytest.raises(BadName, match=r"plan\.json: nodes\[0\]\.name: "):
        Names(bench_plans.plan(label, (node,)))


def test_faults_name_their_path(label: str) -> None:
    port = bench_plans.port("interface-too-long", "compute", 1)
    node = NodePlan(name="gpu0", role="gpu", cores="hardware", memory_mib=64, ports=(port,))
    with pytest.raises(BadName, match=r"nodes\[0\]\.ports\[0\]\.interface: 'interface-too-long' is not an"):
        Names(bench_plans.plan(label, (node,)))
    with pytest.raises(BadName, match="label: 'XYZ' is not six hex digits"):
        Names(bench_plans.plan("XYZ", ()))


def test_labels() -> None:
    assert is_label("0a1b2c")
    assert not any(map(is_label, ("", "0a1b2", "0a1b2c3", "0A1B2C", "../../", "0a1b2g")))
