"""How a node moves bytes inside itself, where that is not what today's hardware does: what-ifs of one node.

The paper's hardware section, as switches of the flow wire's cost model (docs/models/what_ifs.md): copies that do not go
by CNIC loop-back, PCIe with traffic classes, memory behind CXL. An emulation has none of them. Values only.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from testbed.units import Nanoseconds

Copies: TypeAlias = Literal["cnic", "copy_engine", "nic_integrated"]
"""How host-device copies go: by CNIC loop-back, by the GPU's copy engine, by an engine on the NIC itself."""


class HostDesign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node's. The default is the paper's hardware and changes nothing."""

    copies: Copies = "cnic"
    """What a WRITE over a port's loop-back queue pair stands for, and with it what it crosses."""
    pcie_classes: bool = False
    """A port's lanes arbitrate all of its PCIe link, the copy engine's bytes too, and not the NIC's alone."""
    cxl_bits_per_s: int = 0
    """The node's CXL memory, reads and writes together; 0: it has none."""
    cxl_latency: Nanoseconds = 0
    """By which each transfer out of or into CXL memory comes later."""
    in_cxl: tuple[str, ...] = ()
    """Regions in host memory that lie in CXL memory."""


PAPERS_HOST = HostDesign()
