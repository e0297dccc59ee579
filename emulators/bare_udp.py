"""What plain blocking UDP sockets do between two namespaces: the yardstick that the soft RNIC is held against.

Each arm is a Python process of its own, started with command words that pin it and give it a scheduling class, so that
it stands where the NIC's processes stand. This file knows nothing of NICs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

WARM_UP = 100
_ECHO = """
import socket, sys
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind((sys.argv[1], 9))
print("ready", flush=True)
while True:
    data, sender = echo.recvfrom(9000)
    echo.sendto(data, sender)
"""
_PING = """
import socket, sys, time
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ping.settimeout(5)
ping.connect((sys.argv[1], 9))
ping.send(bytes(64))
ping.recv(9000)
ping.setblocking(True)
for turn in range(int(sys.argv[2])):
    start = time.perf_counter_ns()
    ping.send(bytes(64))
    ping.recv(9000)
    print(time.perf_counter_ns() - start)
"""
_SINK = """
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
_SOURCE = """
import socket, sys, time
source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
source.setsockopt(socket.SOL_SOCKET, 32, 32 << 20)
packet, to = bytes(4112), (sys.argv[1], 9)
before = time.process_time_ns()
for turn in range(int(sys.argv[2])):
    source.sendto(packet, to)
print(time.process_time_ns() - before)
"""


class Streamed(NamedTuple):
    """What came of a stream."""

    received: int
    elapsed_ns: int
    """From the first packet at the receiver to its last."""
    sender_cpu_ns: int
    """For as many packets as were received."""
    receiver_cpu_ns: int


class Echo:
    """A process at `address` that sends every datagram back, for as long as the context lasts."""

    def __init__(self, prefix: Sequence[str], address: str) -> None:
        """`prefix` are command words that put a program where the echo shall be."""
        self._prefix = prefix
        self._address = address

    def __enter__(self) -> Echo:
        self._process = _script(self._prefix, _ECHO, self._address)
        _ready(self._process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._process)

    def ping(self, prefix: Sequence[str], turns: int) -> list[int]:
        """Nanoseconds of `turns` round trips of 64 bytes, one after another, from a process of its own."""
        process = _script(prefix, _PING, self._address, str(WARM_UP + turns))
        try:
            output, _ = process.communicate(timeout=60)
        finally:
            _end(process)
        times = [int(line) for line in output.split()][WARM_UP:]
        if len(times) != turns:
            raise RuntimeError(f"the UDP ping made {len(times)} of {turns} round trips")
        return times


def stream(sender: Sequence[str], receiver: Sequence[str], address: str, packets: int) -> Streamed:
    """One process that sends 4,112 B as fast as `sendto` allows, and one that receives."""
    sink = _script(receiver, _SINK, address)
    try:
        _ready(sink)
        source = _script(sender, _SOURCE, address, str(packets))
        try:
            sent, _ = source.communicate(timeout=60)
        finally:
            _end(source)
        counted, _ = sink.communicate(timeout=30)
    finally:
        _end(sink)
    count, elapsed, used = (int(word) for word in counted.split())
    return Streamed(count, elapsed, int(sent) * count // packets, used)


def _script(prefix: Sequence[str], script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )  # fmt: skip


def _ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()
