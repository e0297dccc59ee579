"""A capture at one switch port: every frame, the first and the last, into a pcap file.

    python -m emulators.capture --device DEV --file FILE --state STATE [--limit-mib N]

A packet socket of our own (packet(7)): it is bound before STATE says `ready`, so nothing that is sent after that is
missed, and at the end it is emptied before the file is closed, so nothing that was sent before is lost either (fault
G11). Frames stand in the file in the kernel's order with the kernel's times, both directions; after segmentation,
since hosts here send single packets (platform.md §1.1). STATE is JSON: {"state": "ready"}, then {"state": "finished",
"packets": N, "lost": M, "whole": true, "clock_offset_ns": O, "clock_drift_ns": D}; "lost" is the packet socket's own
count of frames that found no room; "whole" is false if the limit ended it early. The kernel stamps frames by
CLOCK_REALTIME, a run's time is CLOCK_MONOTONIC: O is real minus monotonic when the capture began, D what it has
changed by at the end (somebody set the clock, or NTP bent it). Format: pcap with nanoseconds (magic 0xa1b23c4d), link
type Ethernet.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from io import BufferedWriter
from pathlib import Path

_ETH_P_ALL = 3
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_BUFFER = 64 * 1024 * 1024
_SNAP = 262_144
_BURST = 512
_FLUSH_S = 0.2


class Capture:
    """One device's frames into one file."""

    def __init__(self, device: str, path: Path, limit_bytes: int = 1 << 30, buffer_bytes: int = _BUFFER) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setblocking(False)
        self._file: BufferedWriter = path.open("wb")
        self._file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _SNAP, 1))
        self._file.flush()
        self._socket.bind((device, _ETH_P_ALL))  # from here on every frame counts
        self.packets = 0
        self.lost = 0
        self.whole = True
        self._room = limit_bytes
        self.clock_offset_ns = real_minus_monotonic()
        """When the capture began."""

    def fileno(self) -> int:
        """The socket, for select."""
        return self._socket.fileno()

    def take(self) -> bool:
        """Writes the frames that wait, at most a burst of them; True if there may be more."""
        for _ in range(_BURST):
            try:
                data, control, _, _ = self._socket.recvmsg(_SNAP, 64)
            except BlockingIOError:
                return False
            seconds, nanoseconds = _time_of(control)
            self._room -= 16 + len(data)
            if self._room < 0:
                self.whole = False
                return False
            self._file.write(struct.pack("=IIII", seconds, nanoseconds, len(data), len(data)) + data)
            self.packets += 1
        return True

    def flush(self) -> None:
        """Hands what is written to the kernel: a reader sees whole frames of a live capture."""
        self._file.flush()

    def finish(self) -> None:
        """Takes all that still waits, then closes. Once is enough."""
        while self.whole and self.take():
            pass
        if self._file.closed:
            return
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self.lost = struct.unpack("=II", statistics)[1]
        self._file.close()
        self._socket.close()


def real_minus_monotonic(readings: int = 9) -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, of that reading between two others that took the least time."""
    found: list[tuple[int, int]] = []
    for _ in range(readings):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after - before, real - (before + after) // 2))
    return min(found)[1]


def _time_of(control: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("=qq", data[:16])
            return seconds, nanoseconds
    return 0, 0


def run(capture: Capture, state: Path) -> None:
    """Captures until SIGTERM or SIGINT."""
    wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: os.eventfd_write(wake, 1))
    _say(state, {"state": "ready"})
    while True:
        ready, _, _ = select.select([capture.fileno(), wake], [], [], _FLUSH_S)
        if wake in ready:
            break
        if not capture.whole:  # the file stands as it is; frames that come now cost nobody anything
            capture.finish()
            select.select([wake], [], [])
            break
        while capture.take():
            if select.select([wake], [], [], 0)[0]:
                break
        if not ready:
            capture.flush()
    capture.finish()
    finished: dict[str, object] = {
        "state": "finished",
        "packets": capture.packets,
        "lost": capture.lost,
        "whole": capture.whole,
        "clock_offset_ns": capture.clock_offset_ns,
        "clock_drift_ns": real_minus_monotonic() - capture.clock_offset_ns,
    }
    _say(state, finished)


def _say(path: Path, words: dict[str, object]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(words) + "\n")
    temporary.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Capture every frame of one device.")
    parser.add_argument("--device", required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--limit-mib", type=int, default=1024, help="end the file at this size; default: 1024")
    options = parser.parse_args(arguments)
    try:
        capture = Capture(options.device, options.file, options.limit_mib << 20)
    except OSError as fault:
        print(f"capture of {options.device}: {fault}", file=sys.stderr)
        return 4
    run(capture, options.state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
