"""Entering another process's network namespace, for the calling thread alone.

What is made inside stays inside: sockets keep the namespace in which they were created, children inherit it, and
/proc/sys/net shows the namespace of the thread that opens it (/sys does not: platform.md §4). `os.setns` is new in
Python 3.12, hence the C library. See setns(2), network_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter_network(fd: int) -> None:
    """Moves the calling thread into the network namespace that `fd` refers to. Raises OSError."""
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Within the block the calling thread stands in the network namespace of process `pid`. Raises OSError."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter_network(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            enter_network(home)
    finally:
        os.close(home)


def set_sysctl(name: str, value: str) -> None:
    """Writes net/… of the calling thread's namespace, and reads it back. Raises OSError.

    `name` is a path below /proc/sys, since interface names may hold dots. A branch that this kernel lacks (IPv6
    compiled out, no bridge netfilter) has nothing to be set and is left alone.
    """
    path = Path("/proc/sys") / name
    if not path.exists():
        return
    if path.read_text().strip() != value:
        path.write_text(value)
    found = path.read_text().strip()
    if found != value:
        raise OSError(f"{path}: wrote {value}, reads {found}")
