"""Measures the soft RNIC on this machine, beside what bare UDP sockets do there: `python -m emulators.rnic_bench`.

Two NIC processes in two network namespaces joined by a bridge, as in a run (root). Both arms are pinned alike: the
requester's software and NIC, and the UDP ping, share one core; the responder's NIC, and the UDP echo, have another.
NICs, ping and echo are SCHED_FIFO 10 as the NICs of a run; software is of the ordinary class. Where two things are
compared their rounds alternate. Round trips are closed-loop, one verb at a time. Software polls its completion queue,
as RDMA software does, where it does not say that it sleeps; UDP blocks. The busy neighbour is measured with software
asleep and 1 ms between reads, since a closed loop hides the slices that it takes. CPU is what the kernel's scheduler
charged the NIC's process. Compare the columns with each other, not with another machine's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from emulators import bare_udp
from emulators.bare_udp import Echo
from emulators.nic_pair import LinkedNamespaces, NicPair, wait_for
from emulators.shared_memory import SharedMemory
from emulators.verbs import Verbs
from testbed.clocks.wall import nearest_rank
from testbed.machine import CompareSwap, Completion, CompletionStatus, Read, Received, Verb, Write
from testbed.units import MIB, MICROSECOND, SECOND

WARM_UP = 100
ROUNDS = 5
"""Alternations of the arms that are compared."""
FIFO = 10
"""SCHED_FIFO priority of NICs, ping and echo; the bench of a run gives its NICs the same class."""
GAP_S = 0.001
"""Between two reads beside a busy neighbour."""
_HOG = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


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


class Ratio(msgspec.Struct, frozen=True):
    """One thing over another, a figure for each alternation of the two."""

    what: str
    ratios: tuple[float, ...]


class Report(msgspec.Struct, frozen=True):
    """All that this bench measures."""

    round_trips: tuple[RoundTrip, ...]
    streams: tuple[Stream, ...]
    operations: tuple[Operation, ...]
    ratios: tuple[Ratio, ...] = ()


def cpu_ns(pid: int) -> int:
    """Nanoseconds that a process has had a CPU (kernel's schedstat, first field)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def spin_for(verbs: Verbs) -> list[Completion | Received]:
    """Polls until a message has come and never sleeps, as RDMA software does with `ibv_poll_cq`."""
    deadline = time.monotonic() + 20
    while not verbs.waiting():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing came within 20 s")
    return verbs.poll()


def verb_times(
    pair: NicPair,
    verb: Callable[[int], Verb],
    turns: int,
    *,
    gap_s: float = 0.0,
    wait: Callable[[Verbs], list[Completion | Received]] = wait_for,
) -> list[int]:
    """Nanoseconds of `turns` verbs one after another, `gap_s` apart; raises RuntimeError if one fails."""
    software = pair.verbs[pair.names[0]]
    times: list[int] = []
    for turn in range(turns):
        if gap_s:
            time.sleep(gap_s)
        start = time.perf_counter_ns()
        software.post(verb(turn))
        (answer,) = wait(software)
        times.append(time.perf_counter_ns() - start)
        if not isinstance(answer, Completion) or answer.status is not CompletionStatus.SUCCESS:
            raise RuntimeError(f"{verb(turn)}: {answer}")
    return times


def verb_round_trip(pair: NicPair, what: str, verb: Callable[[int], Verb], turns: int) -> RoundTrip:
    """`turns` verbs one after another, after some to warm up."""
    verb_times(pair, verb, WARM_UP)
    used = sum(cpu_ns(process.pid) for process in pair.processes.values())
    times = verb_times(pair, verb, turns)
    used = sum(cpu_ns(process.pid) for process in pair.processes.values()) - used
    return _round_trip(what, times, used / turns / 2)


def reads_and_ping(
    pair: NicPair, namespaces: LinkedNamespaces, cores: tuple[int, int], turns: int, rounds: int = ROUNDS
) -> tuple[tuple[RoundTrip, ...], tuple[Ratio, ...]]:
    """UDP ping-pong and READ of 64 bytes, by software that polls and by software that sleeps, in alternation.

    The round trips of all three, and for both READs the ratio of each round's medians.
    """
    read = read_of(pair, 64)
    count = -(-turns // rounds)
    ways = {"READ of 64 B": spin_for, "READ of 64 B, sleeping": wait_for}
    pings: list[int] = []
    reads: dict[str, list[int]] = {what: [] for what in ways}
    ratios: dict[str, list[float]] = {what: [] for what in ways}
    used = dict.fromkeys(ways, 0)
    with Echo(_place(namespaces, 1, cores[1]), namespaces.addresses[1]) as echo:
        for _ in range(rounds):
            ping = echo.ping(_place(namespaces, 0, cores[0]), count)
            pings += ping
            for what, wait in ways.items():
                verb_times(pair, read, WARM_UP, wait=wait)
                before = sum(cpu_ns(process.pid) for process in pair.processes.values())
                times = verb_times(pair, read, count, wait=wait)
                used[what] += sum(cpu_ns(process.pid) for process in pair.processes.values()) - before
                ratios[what].append(nearest_rank(sorted(times), 50) / nearest_rank(sorted(ping), 50))
                reads[what] += times
    trips = [_round_trip(what, times, used[what] / len(times) / 2) for what, times in reads.items()]
    over = [Ratio(f"{what} over UDP, p50", tuple(each)) for what, each in ratios.items()]
    return (_round_trip("UDP ping-pong, 64 B", pings, 0), *trips), tuple(over)


def busy_over_idle(pair: NicPair, core: int, turns: int, rounds: int = ROUNDS) -> Ratio:
    """p99 of the READ of 64 bytes while a process spins on the responder's core ÷ p99 without, in alternation."""
    read = read_of(pair, 64)
    ratios = []
    for _ in range(rounds):
        idle = sorted(verb_times(pair, read, turns, gap_s=GAP_S))
        hog = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", _HOG])
        try:
            verb_times(pair, read, WARM_UP, gap_s=GAP_S)
            busy = sorted(verb_times(pair, read, turns, gap_s=GAP_S))
        finally:
            hog.kill()
            hog.wait()
        ratios.append(nearest_rank(busy, 99) / nearest_rank(idle, 99))
    return Ratio("READ of 64 B, busy over idle, p99", tuple(ratios))


def writes_and_sendto(
    pair: NicPair, namespaces: LinkedNamespaces, cores: tuple[int, int], messages: int, rounds: int = ROUNDS
) -> tuple[Stream, Stream, Ratio]:
    """Full packets by bare `sendto` and by WRITEs of 1 MiB, in alternation: both means, and each round's ratio."""
    count = -(-messages // rounds)
    pairs = [(udp_stream(namespaces, cores, count * 256), write_stream(pair, count)) for _ in range(rounds)]
    udp, writes = (_mean(arm) for arm in zip(*pairs, strict=True))
    ratios = tuple(write.packets_per_s / bare.packets_per_s for bare, write in pairs)
    return udp, writes, Ratio("WRITE packets over sendto", ratios)


def _mean(streams: Sequence[Stream]) -> Stream:
    """One stream of all: rates by the time that each took, CPU by packets, which are as many in each."""
    count = len(streams)
    return Stream(
        streams[0].what,
        count / sum(1 / stream.packets_per_s for stream in streams),
        sum(stream.sender_cpu_us for stream in streams) / count,
        sum(stream.receiver_cpu_us for stream in streams) / count,
    )


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


def udp_stream(namespaces: LinkedNamespaces, cores: tuple[int, int], packets: int) -> Stream:
    """One Python process that sends as fast as `sendto` allows, and one that receives."""
    places = [_place(namespaces, index, core) for index, core in enumerate(cores)]
    done = bare_udp.stream(places[0], places[1], namespaces.addresses[1], packets)
    used = (done.sender_cpu_ns, done.receiver_cpu_ns)
    return _stream("sendto of 4,112 B, bare UDP", done.received, done.elapsed_ns, used)


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
    """Runs all but the busy neighbour, about ten seconds. Raises OSError where namespaces cannot be made."""
    with LinkedNamespaces() as namespaces, pinned() as cores, _pair(namespaces, cores, options) as pair:
        peer, word = pair.names[1], pair.remote
        trips, ratios = reads_and_ping(pair, namespaces, cores, turns)
        swap = verb_round_trip(
            pair, "CMP_SWAP, sleeping", lambda n: CompareSwap(n, peer, remote=word, expected=0, desired=0), turns
        )
        udp_packets, writes, over = writes_and_sendto(pair, namespaces, cores, messages)
        reads = read_stream(pair, turns // 4)
    return Report((*trips, swap), (udp_packets, writes, reads), memory_operations(), (*ratios, over))


def measure_neighbour(turns: int = 1000, options: tuple[str, ...] = ()) -> Report:
    """Runs the busy neighbour alone, about fifteen seconds. Raises OSError where namespaces cannot be made."""
    with LinkedNamespaces() as namespaces, pinned() as cores, _pair(namespaces, cores, options) as pair:
        return Report((), (), (), (busy_over_idle(pair, cores[1], turns),))


@contextlib.contextmanager
def pinned() -> Iterator[tuple[int, int]]:
    """Pins this process to the first core that it may use; that core and the next (the same, if there is one only)."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:1])
    try:
        yield allowed[0], allowed[1 % len(allowed)]
    finally:
        os.sched_setaffinity(0, allowed)


def main() -> int:
    """Prints the report, as a table or as JSON."""
    parser = argparse.ArgumentParser(prog="emulators.rnic_bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--turns", type=int, default=2000, help="round trips of each kind")
    parser.add_argument("--messages", type=int, default=60, help="messages of 1 MiB")
    parser.add_argument("--nic-option", action="append", default=[], help="further argument of the NIC processes")
    parser.add_argument("--neighbour", action="store_true", help="only the READ beside a busy neighbour")
    options = parser.parse_args()
    nic_options = tuple(options.nic_option)
    try:
        if options.neighbour:
            report = measure_neighbour(options.turns // 2, nic_options)
        else:
            report = measure(options.turns, options.messages, nic_options)
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
    for ratio in report.ratios:
        print(f"{ratio.what:36} {'  '.join(f'{value:.2f}' for value in ratio.ratios)}")
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


def read_of(pair: NicPair, length: int) -> Callable[[int], Verb]:
    """READs of so many bytes of the other node's region, by their number."""
    return lambda turn: Read(turn, pair.names[1], remote=pair.remote, length=length)


def _pair(namespaces: LinkedNamespaces, cores: tuple[int, int], options: tuple[str, ...]) -> NicPair:
    return NicPair(namespaces, cores=cores, options=("--fifo", str(FIFO), *options))


def _place(namespaces: LinkedNamespaces, index: int, core: int) -> list[str]:
    return [*namespaces.prefix(index), "taskset", "-c", str(core), "chrt", "--fifo", str(FIFO)]


if __name__ == "__main__":
    raise SystemExit(main())
