"""A real network port beside its emulated twin: one contract of ports, and one of the wire over both.

A foreign veth stands for the network card, a namespace behind it for the switch outside; our fabric leads there by an
uplink, which is a second such card.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import bench_plans
import msgspec
import pytest
from outside import Outside
from port_contract import ENDS, PortContract

from emulators.nic_pair import NamedNamespaces
from testbed.experiment.hardware import Hardware, LentInterface
from tests.conformance.soft_rnic_world import Bench, SoftRnicHarness
from tests.conformance.wire_contract import MakeHarness, WireContract
from tests.topologies.registered import registered
from topologies.fabric import Fabric, SwitchPort
from topologies.hardware import Lending
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.programs import run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


class Emulated:
    """gpu0 at a port of our switch."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    def queued(self) -> SwitchPort:
        return next(port for port in self.fabric.ports() if port.name == "gpu0.cnic0")

    def set_cable(self, *, up: bool) -> None:
        port = self.queued()
        with network_of(port.pid):
            run(["ip", "link", "set", port.device, "up" if up else "down"])


class Real(Emulated):
    """gpu0 at a card of the host's, whose cable leads to a switch outside; our uplink's leads there too."""

    def __init__(self, fabric: Fabric, outside: Outside) -> None:
        super().__init__(fabric)
        self._outside = outside

    def queued(self) -> SwitchPort:
        return self.fabric.uplinks()[0]

    def set_cable(self, *, up: bool) -> None:
        self._outside.inside("ip", "link", "set", "sw0", "up" if up else "down")


@contextmanager
def emulated(label: str) -> Iterator[Emulated]:
    plan = bench_plans.demo_plan(label)
    fabric = Fabric(plan, Names(plan), {}, lambda _pid, _what: None)
    try:
        fabric.build()
        yield Emulated(fabric)
    finally:
        fabric.tear_down()


@contextmanager
def real(label: str) -> Iterator[Real]:
    with ExitStack() as undo:
        outside = Outside(label)
        undo.callback(outside.close)
        registry = undo.enter_context(registered(Path(undo.enter_context(tempfile.TemporaryDirectory())), label))
        card, uplink = outside.card(), outside.card()
        hardware = Hardware(
            ports={"gpu0.cnic0": LentInterface(card)}, uplinks={"compute": LentInterface(uplink)}
        )  # fmt: skip
        plan = msgspec.structs.replace(bench_plans.demo_plan(label), hardware=hardware)
        lending = Lending(registry, hardware)
        fabric = Fabric(plan, Names(plan), {}, registry.note, lending)
        undo.callback(fabric.tear_down)
        undo.callback(lending.give_back)
        fabric.build()
        yield Real(fabric, outside)


class TestEmulatedPort(PortContract):
    @pytest.fixture
    def world(self, label: str, unchanged_host: None) -> Iterator[Emulated]:
        with emulated(label) as world:
            yield world


class TestRealPort(PortContract):
    @pytest.fixture
    def world(self, label: str, unchanged_host: None) -> Iterator[Real]:
        with real(label) as world:
            yield world


# --- the wire's contract, over both -----------------------------------------------------------------------------------


class Ends(NamedNamespaces):
    """dpu0 and gpu0 of a fabric. The link of either is taken down at its far end."""

    def __init__(self, world: Emulated) -> None:
        members = {port.node.name: port.port.address for port in world.fabric.members() if port.fabric.roce}
        first, second = ENDS
        super().__init__(
            (world.fabric.pid_of(first), world.fabric.pid_of(second)), (members[first], members[second])
        )  # fmt: skip
        self._world = world

    def set_link(self, index: int, *, up: bool) -> None:
        if ENDS[index] == "gpu0":
            self._world.set_cable(up=up)
            return
        port = next(port for port in self._world.fabric.ports() if port.name == "dpu0.cnic0")
        with network_of(port.pid):
            run(["ip", "link", "set", port.device, "up" if up else "down"])


@pytest.fixture(scope="module", params=[emulated, real], ids=["emulated port", "real port"])
def wire(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with request.param(secrets.token_hex(3)) as world, Bench(Ends(world)) as bench:
        yield bench


class TestWireOverPorts(WireContract):
    @pytest.fixture
    def make_harness(self, wire: Bench) -> MakeHarness:
        def make(receives: int = 8) -> SoftRnicHarness:
            return wire.harness(receives)

        return make
