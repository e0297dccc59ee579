"""`python -m topologies.calibration_port`: rate error of a saturated HTB port, and lateness of a sleeping FIFO process.

Runs in a network namespace of its own, which ends with it; prints `{"rate_error": …, "lateness_p99": …}`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

from topologies import silicon

RATE = 400_000_000
"""Bits a second: about 12,000 frames, which any host can send."""
FRAME = 4170
_SEND_S, _SLEEPS, _SLEEP_S = 0.6, 400, 0.001


def rate_error() -> float:
    """Bytes that left a saturated port ÷ what it was set to."""
    for words in (
        "ip link add p0 mtu 4200 type veth peer name n0 mtu 4200",
        "ip link set p0 up",
        "ip link set n0 up",
        "tc qdisc add dev p0 root handle 1: htb default 1",
        f"tc class add dev p0 parent 1: classid 1:1 htb rate {RATE} ceil {RATE} burst 8400 cburst 8400 quantum 4200",
    ):
        subprocess.run(words.split(), check=True, capture_output=True)
    frame = bytes(6) + bytes(6) + b"\x88\xb5" + bytes(FRAME - 14)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
        port.bind(("p0", 0))
        begin = time.monotonic() + 0.2  # the backlog has formed
        start = before = 0
        while True:
            if port.send(frame) and not start and time.monotonic() >= begin:
                start, before = time.monotonic_ns(), _received()
            if start and time.monotonic_ns() - start >= _SEND_S * 1e9:
                break
        sent, took = _received() - before, time.monotonic_ns() - start
    return sent * 8 * 1e9 / took / RATE


def _received() -> int:
    """Bytes that have come out of the port; /sys would show the namespace that mounted it."""
    rows = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(row.split(":")[1].split()[0]) for row in rows if row.strip().startswith("n0:"))


def lateness_p99() -> int:
    """Nanoseconds by which the 99th of a hundred wakes of this process is late."""
    silicon.favour([os.getpid()], silicon.NIC)
    late = []
    for _ in range(_SLEEPS):
        due = time.monotonic_ns() + round(_SLEEP_S * 1e9)
        time.sleep(_SLEEP_S)
        late.append(max(0, time.monotonic_ns() - due))
    return sorted(late)[_SLEEPS * 99 // 100]


if __name__ == "__main__":
    print(json.dumps({"rate_error": rate_error(), "lateness_p99": lateness_p99()}))
