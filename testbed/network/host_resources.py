"""What transfers cross inside a node besides the wire: the PCIe link of each RoCE port, and the host's memory.

Rates come from the plan (`NodePlan.pcie_bits_per_s`, `dram_bits_per_s`); 0 leaves a resource out. The design is
DualPath's bottleneck analysis (design dualpath 1.7): a CNIC's PCIe link has two directions, a loop-back crosses both;
host memory is half duplex, so what goes in and what comes out share it. Which region lies in host memory is the
plan's to say. Knows no time.

A NIC takes from PCIe what its arbiter lets go next, so a PCIe link is shared by the lane table of its port; memory has
no lanes.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.machine import Read, Verb, Write
from testbed.network.fluid import FluidPort
from testbed.network.port import ONE_LANE
from testbed.network.wiring import PlannedNode, PortWiring


class PortPaths:
    """The two directions of one RoCE port: what bytes that leave cross, what bytes that come in cross."""

    __slots__ = ("_loop_end", "down", "up")

    def __init__(self, port: PortWiring, pcie_bits_per_s: int) -> None:
        rate, table = port.rate_bits_per_s, port.lanes or ONE_LANE
        uplink, downlink = FluidPort(rate, table), FluidPort(rate, table)
        self.up: tuple[FluidPort, ...] = (uplink,)
        self.down: tuple[FluidPort, ...] = (downlink,)
        self._loop_end: tuple[FluidPort, ...] = (FluidPort(rate, table),)
        # What is written over PCIe has come down or is looped back from the uplink: twice the rate is never filled.
        if not 0 < pcie_bits_per_s < 2 * rate:
            return
        # All that leaves crosses the uplink, loop-backs too, so a PCIe link as fast as it can never be the fuller one.
        if pcie_bits_per_s < rate:
            self.up = (uplink, FluidPort(pcie_bits_per_s, table))
        written = FluidPort(pcie_bits_per_s, table)
        self._loop_end = (written,)
        # All that comes down crosses PCIe, so a downlink as fast as it can never be the fuller one.
        self.down = (written,) if pcie_bits_per_s <= rate else (downlink, written)

    def loop(self) -> tuple[FluidPort, ...]:
        """From the port back to itself: the uplink, as in a soft RNIC, and PCIe both ways; never the downlink."""
        return self.up + self._loop_end


class HostMemory:
    """The memory of every node that the plan gives a rate, and which regions lie in it."""

    def __init__(self, nodes: Iterable[PlannedNode]) -> None:
        self._ports: dict[str, FluidPort] = {}
        self._names: set[tuple[str, str]] = set()
        self._keys: set[tuple[str, int]] = set()
        for node in nodes:
            if node.dram_bits_per_s:
                self._ports[node.name] = FluidPort(node.dram_bits_per_s, None)
                for region in node.regions:
                    if region.dram:
                        self._names.add((node.name, region.name))
                        self._keys.add((node.name, region.key))

    def crossed(self, node: str, peer: str, verb: Verb) -> tuple[FluidPort, ...]:
        """Memories that the data of `verb`, posted by `node`, cross. A READ lands where no plan says: not counted."""
        found = []
        if isinstance(verb, Write) and (node, verb.source) in self._names:
            found.append(self._ports[node])
        if isinstance(verb, Write | Read) and (peer, verb.remote.key) in self._keys:
            found.append(self._ports[peer])
        return tuple(found)
