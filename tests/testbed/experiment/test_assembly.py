from __future__ import annotations

import pytest

from testbed.blink.device import EmulatedDevice
from testbed.blink.frontend import FrontEnd
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.experiment.assembly import (
    SYSTEMS,
    assemble_node,
    parameters_of,
    provisions_of,
)
from testbed.experiment.fabrics import fabric_of
from testbed.experiment.outlines import NodeAssembly, Surroundings
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.sweep import Place
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.serving.tokens import ByteVocabulary
from testbed.workload.client import OpenLoopClient


def plan_of(kind: str, *overrides: str) -> Plan:
    asked = {"text": "requests = 3", "agents": 'trajectories = { kind = "fixed" }'}[SYSTEMS[kind].clients]
    text = f'name = "x"\ntitle = "X"\n[systems.s]\nkind = "{kind}"\n[workload]\n{asked}\n'
    spec = spec_from_bytes(text.encode(), "x.toml", overrides)
    return compile_plan(spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock="wall")


def assembled(plan: Plan) -> dict[str, NodeAssembly]:
    found = {}
    for node in plan.nodes:
        memories: dict[str, LocalMemory] = {region.name: PlainMemory(region.size) for region in node.regions}
        found[node.name] = assemble_node(plan, node.name, Surroundings(memories, ByteVocabulary()))
    return found


@pytest.mark.parametrize("kind", SYSTEMS)
def test_every_node_of_every_system_can_be_assembled(kind: str) -> None:
    plan = plan_of(kind)
    nodes = assembled(plan)
    server, machine = SYSTEMS[kind].server
    # Where nobody is asked anything, nobody answers.
    assert not server or machine in {one.name for one in nodes[server].machines}
    assert SYSTEMS[kind].kind == kind
    assert isinstance(parameters_of(plan), SYSTEMS[kind].parameters)
    if any(node.role == "host" for node in plan.nodes):
        assert provisions_of(plan).kv_blocks > 0


@pytest.mark.parametrize("kind", SYSTEMS)
def test_peers_of_every_system_name_each_other_and_share_a_fabric(kind: str) -> None:
    outlines = {node.name: node for node in SYSTEMS[kind].plan_nodes(SYSTEMS[kind].parameters())}
    for node in outlines.values():
        for own in node.connections:
            back = own._replace(interface=own.peer_interface, peer=node.name, peer_interface=own.interface)
            assert back in outlines[own.peer].connections
            assert own.interface in node.ports
            assert fabric_of(own.interface) == fabric_of(own.peer_interface) != "front"


def test_blink_has_its_machines_where_the_paper_puts_them() -> None:
    nodes = assembled(plan_of("blink"))
    (client,) = nodes["client0"].machines
    (front_end,) = nodes["dpu0"].machines
    (scheduler,) = nodes["gpu0"].machines
    assert isinstance(client, OpenLoopClient)
    assert isinstance(front_end, FrontEnd)
    assert isinstance(scheduler, PersistentScheduler)
    assert isinstance(nodes["gpu0"].accelerator, EmulatedDevice)
    assert nodes["host0"] == NodeAssembly(())
    assert (client.name, front_end.name, scheduler.name) == ("client", "front_end", "scheduler")


def test_the_service_level_reaches_the_queue_pairs() -> None:
    plan = plan_of("blink", "systems.s.service_level=2")
    assert {pair.service_level for node in plan.nodes for pair in node.queue_pairs} == {2}


def test_a_node_that_the_plan_has_not_is_told() -> None:
    with pytest.raises(KeyError, match="gpu7"):
        assemble_node(plan_of("blink"), "gpu7", Surroundings({}, ByteVocabulary()))
