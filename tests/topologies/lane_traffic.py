"""Frames marked by service level, sent from dpu0 to gpu0 of the demo's network, for tests of lanes in the kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable

from topologies.fabric import Fabric, SwitchPort
from topologies.lanes import LEAF_LIMIT

Build = Callable[..., Fabric]
"""What the fixture `build` gives."""
FRAME = 4154
"""Bytes of the longest one."""
HEADERS = 42
FLOOD = """
import socket, sys
flows = [tuple(map(int, word.split(":"))) for word in sys.argv[1].split(",")]  # TOS:frames:payload
sockets = []
for mark, _, _ in flows:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 32, 1 << 29)  # SO_SNDBUFFORCE
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
    sockets.append(s)
for turn in range(max(frames for _, frames, _ in flows)):
    for s, (_, frames, size) in zip(sockets, flows):
        if turn < frames: s.sendto(bytes(size), ("10.61.0.3", 9))  # not connected, so refusals are nothing to it
"""


def to_gpu(fabric: Fabric) -> SwitchPort:
    return next(port for port in fabric.ports() if port.name == "gpu0.cnic0")


def flood(fabric: Fabric, sizes: dict[int, int], frames: int = LEAF_LIMIT - 200) -> None:
    """Fills lanes of gpu0's port, named by service level, with frames of these sizes."""
    words = ",".join(f"{level << 4}:{frames}:{size - HEADERS}" for level, size in sizes.items())
    fabric.execute("dpu0", [sys.executable, "-c", FLOOD, words])
