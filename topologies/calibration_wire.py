"""`python -m topologies.calibration_wire`: what soft RNICs get of a fabric's ports with their lanes, at several rates.

The fabric and the lanes are made by what makes those of a run; the NICs, their software and the timing are
`emulators.port_bench`'s. Prints a JSON list of `PortBench`, one for each of `RATES`. Nothing of it is in the registry:
its namespaces end with its processes, and the cell that it is run in ends those.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec
from msgspec.structs import replace

from testbed.network.wire_profile import PortBench
from topologies import lanes
from topologies.fabric import Fabric
from topologies.lane_bench import network, port_of
from topologies.lane_queues import queues_of
from topologies.processes import SOURCE

RATES = tuple(mega * 1_000_000 for mega in (60, 125, 250, 500, 1_000, 2_000, 4_000))
"""Bits a second. Shipped experiments whose systems speak text have ports of 104 to 749 Mbit/s in the kernel."""
_ENDS = ("dpu0", "gpu0")


def measure() -> list[PortBench]:
    """About seven seconds. Raises NetworkFault, LaneFault, ProgramFailed, RuntimeError with the bench's word."""
    with network() as fabric:
        return [_at(fabric, rate) for rate in RATES]


def _at(fabric: Fabric, rate: int) -> PortBench:
    """The ports of both ends at this rate, with their lanes. Packets are counted at the fastest alone."""
    ends = [port_of(fabric, node) for node in _ENDS]
    for end in ends:
        port = end._replace(port=replace(end.port, rate_bits_per_s=rate, kernel_rate_bits_per_s=rate))
        lanes.apply(port, queues_of(port))
    words = [sys.executable, "-m", "emulators.port_bench", "--rate", str(rate)]
    words += ["--pids", *(str(fabric.pid_of(node)) for node in _ENDS)]
    words += ["--addresses", *(end.port.address for end in ends)]
    words += ["--stream"] if rate == RATES[-1] else []
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"at {rate} bit/s: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return msgspec.json.decode(done.stdout, type=PortBench)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure()).decode() + "\n")
