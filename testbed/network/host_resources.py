"""What transfers cross inside a node besides the wire: the PCIe link of each RoCE port, and the host's memory.

Rates come from the plan (`NodePlan.pcie_bits_per_s`, `dram_bits_per_s`); 0 leaves a resource out. The design is
DualPath's bottleneck analysis (design dualpath 1.7): a CNIC's PCIe link has two directions, a loop-back crosses both;
host memory is half duplex, so what goes in and what comes out share it. Which region lies in host memory is the
plan's to say. Knows no time.

A NIC takes from PCIe what its arbiter lets go next, so a PCIe link is shared by the lane table of its port; memory has
no lanes. `testbed.network.host_design` has what may be otherwise: copies that are no loop-back cross the PCIe link
once, towards their target, and the wire never. One link then stands for all PCIe that a GPU and its CNIC share.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.machine import Read, Verb, Write
from testbed.network.fluid import FluidPort
from testbed.network.host_design import HostDesign
from testbed.network.port import ONE_LANE
from testbed.network.wiring import PlannedNode, PortWiring
from testbed.units import Nanoseconds


class PortPaths:
    """The two directions of one RoCE port: what bytes that leave cross, what bytes that come in cross."""

    __slots__ = ("_loop_end", "_read", "_written", "down", "up")

    def __init__(self, port: PortWiring, pcie_bits_per_s: int, design: HostDesign) -> None:
        rate, table = port.rate_bits_per_s, port.lanes or ONE_LANE
        uplink, downlink = FluidPort(rate, table), FluidPort(rate, table)
        self.up: tuple[FluidPort, ...] = (uplink,)
        self.down: tuple[FluidPort, ...] = (downlink,)
        self._loop_end: tuple[FluidPort, ...] = (FluidPort(rate, table),)
        self._read = self._written = FluidPort(pcie_bits_per_s, table)
        if design.copies != "cnic" and pcie_bits_per_s:
            # What the wire does not carry crosses PCIe too, so no link is the fuller one for certain.
            self._read = FluidPort(pcie_bits_per_s, table)
            self.up, self.down = (uplink, self._read), (downlink, self._written)
            return
        # What is written over PCIe has come down or is looped back from the uplink: twice the rate is never filled.
        if not 0 < pcie_bits_per_s < 2 * rate:
            return
        # All that leaves crosses the uplink, loop-backs too, so a PCIe link as fast as it can never be the fuller one.
        if pcie_bits_per_s < rate:
            self.up = (uplink, FluidPort(pcie_bits_per_s, table))
        self._loop_end = (self._written,)
        # All that comes down crosses PCIe, so a downlink as fast as it can never be the fuller one.
        self.down = (self._written,) if pcie_bits_per_s <= rate else (downlink, self._written)

    def loop(self) -> tuple[FluidPort, ...]:
        """From the port back to itself: the uplink, as in a soft RNIC, and PCIe both ways; never the downlink."""
        return self.up + self._loop_end

    def copied(self, *, from_host: bool, to_host: bool) -> tuple[FluidPort, ...]:
        """What a copy that is no loop-back crosses: PCIe towards its target; both ways within one kind of memory."""
        if from_host == to_host:
            return self._read, self._written
        return (self._written,) if from_host else (self._read,)


class HostMemory:
    """The memory of every node that the plan gives a rate, DRAM and CXL, and which regions lie in it."""

    def __init__(self, nodes: Iterable[PlannedNode]) -> None:
        self._names: dict[tuple[str, str], FluidPort | None] = {}
        """Of every region in host memory by node and name; None where that memory has no rate."""
        self._keys: dict[tuple[str, int], FluidPort | None] = {}
        """The same by node and key."""
        self._delays: dict[int, Nanoseconds] = {}
        """By identity of the memory that takes longer."""
        for node in nodes:
            design = node.host_design
            dram = FluidPort(node.dram_bits_per_s, None) if node.dram_bits_per_s else None
            cxl = FluidPort(design.cxl_bits_per_s, None) if design.cxl_bits_per_s else None
            if cxl is not None:
                self._delays[id(cxl)] = design.cxl_latency
            for region in node.regions:
                if region.dram:
                    memory = cxl if region.name in design.in_cxl else dram
                    self._names[node.name, region.name] = memory
                    self._keys[node.name, region.key] = memory

    def crossed(self, node: str, peer: str, verb: Verb) -> tuple[FluidPort, ...]:
        """Memories that the data of `verb`, posted by `node`, cross. A READ lands where no plan says: not counted."""
        found = []
        if isinstance(verb, Write) and (source := self._names.get((node, verb.source))) is not None:
            found.append(source)
        if isinstance(verb, Write | Read) and (target := self._keys.get((peer, verb.remote.key))) is not None:
            found.append(target)
        return tuple(found)

    def delay(self, memories: Iterable[FluidPort]) -> Nanoseconds:
        """How much later what crosses these memories comes."""
        return sum(self._delays.get(id(memory), 0) for memory in memories) if self._delays else 0

    def ends(self, node: str, verb: Verb) -> tuple[bool, bool]:
        """Whether a copy within `node` comes out of host memory, and whether it goes into it."""
        if not isinstance(verb, Write):
            return False, False
        return (node, verb.source) in self._names, (node, verb.remote.key) in self._keys
