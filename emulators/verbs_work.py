"""Each verb as the numbers of a work request (`emulators.verbs_ring.WORK_REQUEST`).

Knows neither rings nor queue pairs; what a NIC may be asked for is what stands in `WORK`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from emulators.verbs_ring import Opcode
from testbed.machine import CompareSwap, FetchAdd, Read, Send, Verb, Write

_WORD_MASK = (1 << 64) - 1

Work: TypeAlias = tuple[int, int, int, int, int, int]
"""Opcode, remote address, remote key, length, operand, swap."""


def _write(verb: Write) -> Work:
    return Opcode.WRITE, verb.remote.address, verb.remote.key, len(verb.data), 0, 0


def _read(verb: Read) -> Work:
    return Opcode.READ, verb.remote.address, verb.remote.key, verb.length, 0, 0


def _compare_swap(verb: CompareSwap) -> Work:
    address, key = verb.remote.address, verb.remote.key
    return Opcode.COMPARE_SWAP, address, key, 0, verb.expected & _WORD_MASK, verb.desired & _WORD_MASK


def _fetch_add(verb: FetchAdd) -> Work:
    return Opcode.FETCH_ADD, verb.remote.address, verb.remote.key, 0, verb.addend & _WORD_MASK, 0


def _send(verb: Send) -> Work:
    return Opcode.SEND, 0, 0, len(verb.data), 0, 0


WORK: dict[type[Verb], Callable[[Any], Work]] = {
    Write: _write,
    Read: _read,
    CompareSwap: _compare_swap,
    FetchAdd: _fetch_add,
    Send: _send,
}
"""How each verb is written down."""
