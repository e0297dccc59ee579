"""Measures the soft RNIC on this machine, beside what bare UDP sockets do there: `python -m emulators.rnic_bench`.

Two NIC processes in two network namespaces joined by a bridge, as in a run (root). Round trips are closed-loop, one
verb at a time, the software asleep in between; CPU is what the kernel's scheduler charged the NIC's process. Numbers
of one noisy machine: compare the columns with each other, not with another machine's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from emulators.nic_pair import LinkedNamespaces, NicPair, wait_for
from emulators.shared_memory import SharedMemory
from testbed.clocks.wall import nearest_rank
from testbed.machine import CompareSwap, Completion, CompletionStatus, Read, Verb, Write
from testbed.units import MIB, MICROSECOND, SECOND

WARM_UP = 200
UDP_ECHO = """
import socket, sys
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind((sys.argv[1], 9))
print("ready", flush=True)
while True:
    data, sender = echo.recvfrom(9000)
    echo.sendto(data, sender)
"""
UDP_PING = """
import socket, sys, time
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ping.settimeout(5)
ping.connect((sys.argv[1], 9))
for turn in range(int(sys.argv[2])):
    start = time.perf_counter_ns()
    ping.send(bytes(64))
    ping.recv(9000)
    print(time.perf_counter_ns() - start)
"""
UDP_SINK = """
import socket, sys, time
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
sink.bind((sys.argv[1], 9))
sink.settimeout(10)
print("ready", flush=True)
buffer, count = bytearray(9000), 0
sink.recv_into(buffer)
start, before = time.perf_counter_ns(), time.process_time_ns()
sink.settimeout(1)
try:
    while True:
        sink.recv_into(buffer)
        count += 1
        last, used = time.perf_counter_ns(), time.process_time_ns()
except TimeoutError:
    print(count, last - start, used - before)
"""
UDP_SOURCE = """
import socket, sys, time
source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
source.setsockopt(socket.SOL_SOCKET, 32, 32 << 20)
packet, to = bytes(4112), (sys.argv[1], 9)
before = time.process_time_ns()
for turn in range(int(sys.argv[2])):
    source.sendto(packet, to)
print(time.process_time_ns() - before)
"""


class RoundTrip(msgspec.Struct, frozen=True):
    """Closed-loop round trips."""

    what: str
    p50_us: float
    p99_us: float
    n: int
    cpu_us: float
    """CPU of each NIC process for one round trip, mean of the two; 0 for bare sockets."""


class Stream(msgspec.Struct, frozen=True):
    """A stream of full packets."""

    what: str
    packets_per_s: float
    sender_cpu_us: float
    """CPU of the sending process for one packet."""
    receiver_cpu_us: float


class Operation(msgspec.Struct, frozen=True):
    """One operation on shared memory, called from Python in a tight loop."""

    what: str
    ns: float
    """Best of five rounds."""


class Report(msgspec.Struct, frozen=True):
    """All that this bench measures."""

    round_trips: tuple[RoundTrip, ...]
    streams: tuple[Stream, ...]
    operations: tuple[Operation, ...]


def cpu_ns(pid: int) -> int:
    """Nanoseconds that a process has had a CPU (kernel's schedstat, first field)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def verb_round_trip(pair: NicPair, what: str, verb: Callable[[int], Verb], turns: int) -> RoundTrip:
    """`turns` verbs one after another; raises RuntimeError if one fails."""
    software = pair.verbs[pair.names[0]]
    times: list[int] = []
    used = 0
    for turn in range(-WARM_UP, turns):
        if turn == 0:
            used = sum(cpu_ns(process.pid) for process in pair.processes.values())
        start = time.perf_counter_ns()
        software.post(verb(turn))
        (answer,) = wait_for(software)
        if turn >= 0:
            times.append(time.perf_counter_ns() - start)
        if not isinstance(answer, Completion) or answer.status is not CompletionStatus.SUCCESS:
            raise RuntimeError(f"{what}: {answer}")
    used = sum(cpu_ns(process.pid) for process in pair.processes.values()) - used
    return _round_trip(what, times, used / turns / 2)


def udp_round_trip(namespaces: LinkedNamespaces, turns: int) -> RoundTrip:
    """Two blocking Python processes that send each other 64 bytes."""
    echo = _script(namespaces, 1, UDP_ECHO, namespaces.addresses[1])
    try:
        _ready(echo)
        ping = _script(namespaces, 0, UDP_PING, namespaces.addresses[1], str(WARM_UP + turns))
        output, _ = ping.communicate(timeout=120)
    finally:
        _end(echo)
    return _round_trip("UDP ping-pong, 64 B", [int(line) for line in output.split()][WARM_UP:], 0)


def write_stream(pair: NicPair, messages: int) -> Stream:
    """WRITEs of 1 MiB, four in flight."""
    software = pair.verbs[pair.names[0]]
    sender, receiver = (pair.processes[name].pid for name in pair.names)
    data = bytes(range(256)) * (MIB // 256)
    for phase_messages in (4, messages):
        start, before = time.perf_counter_ns(), (cpu_ns(sender), cpu_ns(receiver))
        posted = done = 0
        while done < phase_messages:
            while posted < phase_messages and posted - done < 4:
                software.post(Write(posted, pair.names[1], remote=pair.remote, data=data))
                posted += 1
            done += len(wait_for(software))
        elapsed = time.perf_counter_ns() - start
    packets = messages * MIB // 4096
    used = (cpu_ns(sender) - before[0], cpu_ns(receiver) - before[1])
    return _stream("WRITE of 1 MiB, soft RNIC", packets, elapsed, used)


def read_stream(pair: NicPair, turns: int) -> Stream:
    """READs of 64 KiB one at a time, as a front end's metadata poll: sixteen response packets each."""
    software = pair.verbs[pair.names[0]]
    reader, owner = (pair.processes[name].pid for name in pair.names)
    start, before = time.perf_counter_ns(), (cpu_ns(owner), cpu_ns(reader))
    for turn in range(turns):
        software.post(Read(turn, pair.names[1], remote=pair.remote, length=64 * 1024))
        wait_for(software)
    used = (cpu_ns(owner) - before[0], cpu_ns(reader) - before[1])
    return _stream("READ of 64 KiB, soft RNIC", turns * 16, time.perf_counter_ns() - start, used)


def udp_stream(namespaces: LinkedNamespaces, packets: int) -> Stream:
    """One Python process that sends as fast as `sendto` allows, and one that receives."""
    sink = _script(namespaces, 1, UDP_SINK, namespaces.addresses[1])
    try:
        _ready(sink)
        source = _script(namespaces, 0, UDP_SOURCE, namespaces.addresses[1], str(packets))
        sent, _ = source.communicate(timeout=120)
        counted, _ = sink.communicate(timeout=30)
    finally:
        _end(sink)
    count, elapsed, used = (int(word) for word in counted.split())
    return _stream("sendto of 4,112 B, bare UDP", count, elapsed, (int(sent) * count // packets, used))


def memory_operations(count: int = 20_000) -> tuple[Operation, ...]:
    """What the words of a ring cost: loads, stores and the CPU's atomics on memory that another process maps too."""
    memory = SharedMemory.create(4096, populate=True)
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: memory.load(64),
        "store": lambda: memory.store(64, 1),
        "fetch_add": lambda: memory.fetch_add(64, 1),
        "compare_swap": lambda: memory.compare_swap(128, 0, 0),
    }
    operations = []
    for what, call in calls.items():
        rounds = []
        for _ in range(5):
            start = time.perf_counter_ns()
            for _ in range(count):
                call()
            rounds.append((time.perf_counter_ns() - start) / count)
        operations.append(Operation(what, min(rounds)))
    memory.close()
    return tuple(operations)


def measure(turns: int = 2000, messages: int = 60, options: tuple[str, ...] = ()) -> Report:
    """Runs everything, about ten seconds. Raises OSError where namespaces cannot be made."""
    with LinkedNamespaces() as namespaces:
        udp = udp_round_trip(namespaces, turns)
        udp_packets = udp_stream(namespaces, messages * 256)
        with NicPair(namespaces, options=options) as pair:
            peer, word = pair.names[1], pair.remote
            read = verb_round_trip(pair, "READ of 64 B", lambda n: Read(n, peer, remote=word, length=64), turns)
            swap = verb_round_trip(
                pair, "CMP_SWAP", lambda n: CompareSwap(n, peer, remote=word, expected=0, desired=0), turns
            )
            writes = write_stream(pair, messages)
            reads = read_stream(pair, turns // 4)
    return Report((udp, read, swap), (udp_packets, writes, reads), memory_operations())


def main() -> int:
    """Prints the report, as a table or as JSON."""
    parser = argparse.ArgumentParser(prog="emulators.rnic_bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--turns", type=int, default=2000, help="round trips of each kind")
    parser.add_argument("--messages", type=int, default=60, help="messages of 1 MiB")
    parser.add_argument("--nic-option", action="append", default=[], help="further argument of the NIC processes")
    options = parser.parse_args()
    try:
        report = measure(options.turns, options.messages, tuple(options.nic_option))
    except OSError as error:
        print(f"this host cannot: {error}", file=sys.stderr)
        return 3
    if options.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return 0
    for trip in report.round_trips:
        print(f"{trip.what:28} p50 {trip.p50_us:7.1f} us  p99 {trip.p99_us:7.1f} us  NIC {trip.cpu_us:5.1f} us each")
    for stream in report.streams:
        cpu = f"sender {stream.sender_cpu_us:5.1f} us/packet  receiver {stream.receiver_cpu_us:5.1f} us/packet"
        print(f"{stream.what:28} {stream.packets_per_s:9,.0f} packets/s  {cpu}")
    for operation in report.operations:
        print(f"{operation.what:28} {operation.ns:9,.0f} ns")
    return 0


def _round_trip(what: str, times: list[int], cpu: float) -> RoundTrip:
    times.sort()
    p50, p99 = (nearest_rank(times, percent) / MICROSECOND for percent in (50, 99))
    return RoundTrip(what, p50, p99, len(times), cpu / MICROSECOND)


def _stream(what: str, packets: int, elapsed: int, used: tuple[int, int]) -> Stream:
    sender, receiver = (each / packets / MICROSECOND for each in used)
    return Stream(what, packets * SECOND / elapsed, sender, receiver)


def _script(namespaces: LinkedNamespaces, index: int, script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [*namespaces.prefix(index), sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


if __name__ == "__main__":
    raise SystemExit(main())
