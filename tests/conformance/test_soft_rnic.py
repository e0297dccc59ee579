"""The soft RNIC keeps the wire contract: two NIC processes in network namespaces of their own, joined by a bridge.

Over the ports of a run's fabric, emulated and real, it does so in tests/topologies/test_ports.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulators.nic_pair import LinkedNamespaces
from tests.conformance.soft_rnic_world import Bench, SoftRnicHarness
from tests.conformance.wire_contract import MakeHarness, WireContract


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with LinkedNamespaces() as namespaces, Bench(namespaces) as bench:
        yield bench


@pytest.mark.root
class TestSoftRnic(WireContract):
    @pytest.fixture
    def make_harness(self, bench: Bench) -> MakeHarness:
        def make(receives: int = 8) -> SoftRnicHarness:
            return bench.harness(receives)

        return make
