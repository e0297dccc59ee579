"""Which resources a transfer of KV crosses: NICs, wire, PCIe and host memory, named as events name them.

Follows the tables of design dualpath 1.6. A resource is NODE.PORT.KIND or NODE.dram; kinds are snic_tx and snic_rx,
cnic_read and cnic_write (the PCIe side of a CNIC, which a loop-back crosses twice), wire, and copy_engine for a copy
that passes no NIC. Knows names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Memories(NamedTuple):
    """Whether the bytes leave from, and land in, the host's memory (DRAM), and not a device's."""

    source: bool
    target: bool


DRAM: Mapping[str, Memories] = MappingProxyType(
    {
        "pe1-2": Memories(source=False, target=True),
        "pe3-4": Memories(source=True, target=False),
        "pe5-7": Memories(source=False, target=True),
        "pe8-9": Memories(source=True, target=False),
        "de1-2": Memories(source=False, target=True),
        "de3-5": Memories(source=True, target=False),
        "de-miss": Memories(source=False, target=True),
        "de6-7": Memories(source=True, target=False),
        "persist-copy": Memories(source=False, target=True),
        "persist-write": Memories(source=True, target=False),
        "replicate": Memories(source=False, target=False),
    }
)
"""By hop. Other hops cross no DRAM."""
_DEVICES = Memories(source=False, target=False)


def crossed(source: str, target: str, memories: Memories = _DEVICES) -> tuple[str, ...]:
    """Resources between two ports, each NODE.PORT, in the order in which bytes cross them."""
    found = [f"{node_of(source)}.dram"] if memories.source else []
    if _is_storage_nic(source):
        found.append(f"{source}.snic_tx")
    else:
        found.append(f"{source}.cnic_read")
        if source != target:
            found.append(f"{source}.wire")
    if _is_storage_nic(target):
        found.append(f"{target}.snic_rx")
    else:
        if source != target:
            found.append(f"{target}.wire")
        found.append(f"{target}.cnic_write")
    if memories.target:
        found.append(f"{node_of(target)}.dram")
    return tuple(found)


def copied(port: str, memories: Memories = _DEVICES) -> tuple[str, ...]:
    """Resources of a host-device copy by the GPU's copy engine."""
    dram = (f"{node_of(port)}.dram",)
    return (*dram * memories.source, f"{port}.copy_engine", *dram * memories.target)


def crossings(hop: str, source: str, target: str) -> tuple[str, ...]:
    """As `crossed`, for a row of the table of hops."""
    return crossed(source, target, DRAM.get(hop, _DEVICES))


def node_of(port: str) -> str:
    """The node of NODE.PORT."""
    return port.partition(".")[0]


def _is_storage_nic(port: str) -> bool:
    return port.partition(".")[2].startswith("snic")
