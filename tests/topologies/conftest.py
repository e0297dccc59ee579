"""Fixtures of the privileged tests: plans, and a host that must be afterwards as it was before."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.experiment.plan import Plan

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path; these are their shared modules

import bench_plans
import host_state


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
