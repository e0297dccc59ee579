"""Fixtures of the privileged tests: plans, and a host that must be afterwards as it was before."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.experiment.plan import Plan
from testbed.network.lanes import LaneTable
from topologies.fabric import Fabric
from topologies.naming import Names

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path; these are their shared modules

import bench_plans
import host_state

pytest.register_assert_rewrite("port_contract", "tests.conformance.wire_contract")


@pytest.fixture
def label() -> str:
    return secrets.token_hex(3)


@pytest.fixture
def demo_plan(label: str) -> Plan:
    """client0, dpu0, gpu0 and host0 on a front and a compute fabric, as the demo has them."""
    return bench_plans.demo_plan(label)


@pytest.fixture
def unchanged_host(label: str) -> Iterator[None]:
    """Fails the test when links, namespaces, containers, mounts, shared memory, firewall or sysctls differ after it."""
    before = host_state.snapshot()
    yield
    left = host_state.differences(before, label)
    assert not left, "\n".join(["left behind or changed:", *left])


@pytest.fixture
def build(label: str, unchanged_host: None) -> Iterator[Callable[..., Fabric]]:
    """Builds the demo's network with this lane table, MTU or other changes, in place of the one before."""
    made: list[Fabric] = []

    def make(table: LaneTable | None = None, mtu: int = 4200, **changes: object) -> Fabric:
        for other in made:
            other.tear_down()
        plan = bench_plans.demo_plan(label, fabrics=bench_plans.fabrics(mtu, lanes=table), **changes)
        fabric = Fabric(plan, Names(plan), {}, lambda _pid, _what: None)
        made.append(fabric)
        fabric.build()
        return fabric

    yield make
    for fabric in made:
        fabric.tear_down()


@pytest.fixture
def fabric(demo_plan: Plan, unchanged_host: None) -> Iterator[Fabric]:
    """The demo's network."""
    made = Fabric(demo_plan, Names(demo_plan), {}, lambda _pid, _what: None)
    try:
        made.build()
        yield made
    finally:
        made.tear_down()
