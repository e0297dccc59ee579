"""A node's regions as its leader and engines need them: sizes in pages, and where peers' regions begin.

Names of regions are defined here, once. Knows no contents.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from testbed.dualpath.blocks import BlockShape
from testbed.machine import RemoteAddress
from testbed.network.memory_region import LocalMemory

BUFFER = "buffer"
"""Region of a node's PE or DE buffer."""


def hbm_region(engine: int) -> str:
    """Region of an engine's HBM for KV."""
    return f"hbm{engine}"


class NodeMemory(msgspec.Struct, frozen=True):
    """Memory of `node`; `addresses` are those of all nodes' regions, as de0.buffer or pe1.hbm3."""

    node: str
    memories: Mapping[str, LocalMemory]
    addresses: Mapping[str, RemoteAddress]

    def address(self, node: str, region: str) -> RemoteAddress:
        """First byte of a region, as its peers reach it. Raises KeyError."""
        return self.addresses[f"{node}.{region}"]

    def pages(self, region: str, layers: int, shape: BlockShape, total_bytes: int) -> int:
        """Pages of `layers` Layer Blocks: as many as the true bytes hold, and the region has images for."""
        images = self.memories[region].size // (layers * shape.layer_image)
        return min(total_bytes // (layers * shape.layer_bytes), images)


class Hbm:
    """The HBM of one engine: which region it is, by which port it is reached, how many pages it has."""

    def __init__(self, memory: NodeMemory, engine: int) -> None:
        self.node = memory.node
        self.engine = engine
        self.region = hbm_region(engine)
        self.memory = memory.memories[self.region]
        self.address = memory.address(memory.node, self.region)

    @property
    def interface(self) -> str:
        """The engine's own CNIC."""
        return f"cnic{self.engine}"

    @property
    def port(self) -> str:
        """The same, as peers name it."""
        return f"{self.node}.{self.interface}"
