"""`python -m emulators.port_bench`: what two soft RNICs get of a network that stands, with its lanes.

Each NIC is in the network namespace of a process that is named, on one core, and its own port has the rate that the
switch's port has; software sleeps until its completion, as a run's does. Small READs and READs of 64 KiB are timed one
after another; then, with `--stream`, full packets are counted. Prints one JSON object (`PortBench`).
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from emulators.nic_pair import NamedNamespaces, NicPair
from emulators.rnic_bench import FIFO, WARM_UP, pinned, read_of, verb_times, write_stream
from testbed.clocks.wall import nearest_rank
from testbed.network.lanes import LaneTable
from testbed.network.wire_profile import BULK_READ_BYTES, PortBench
from testbed.units import MICROSECOND

SMALL, BULK, MESSAGES = 400, 50, 24


def measure(ends: NamedNamespaces, rate_bits_per_s: int, *, stream: bool) -> PortBench:
    """About a second. Raises OSError, TimeoutError, RuntimeError for a verb that fails."""
    options = ("--fifo", str(FIFO))
    with (
        pinned() as cores,
        NicPair(ends, cores=cores, options=options, rate_bits_per_s=rate_bits_per_s, lanes=LaneTable()) as pair,
    ):
        verb_times(pair, read_of(pair, 64), WARM_UP)
        small = sorted(verb_times(pair, read_of(pair, 64), SMALL))
        bulk = sorted(verb_times(pair, read_of(pair, BULK_READ_BYTES), BULK))
        full = write_stream(pair, MESSAGES) if stream else None
    return PortBench(
        verb_round_trip=nearest_rank(small, 50),
        verb_round_trip_p99=nearest_rank(small, 99),
        bulk_read=nearest_rank(bulk, 50),
        packets_per_s=full.packets_per_s if full else 0.0,
        packet_cost=round((full.sender_cpu_us + full.receiver_cpu_us) * MICROSECOND) if full else 0,
    )


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="emulators.port_bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pids", nargs=2, type=int, required=True, help="a process in the namespace of each end")
    parser.add_argument("--addresses", nargs=2, required=True, help="of the interface cnic0 there")
    parser.add_argument("--rate", type=int, required=True, help="bits a second of the ports")
    parser.add_argument("--stream", action="store_true", help="count full packets too")
    asked = parser.parse_args()
    ends = NamedNamespaces(tuple(asked.pids), tuple(asked.addresses))
    sys.stdout.write(msgspec.json.encode(measure(ends, asked.rate, stream=asked.stream)).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
