"""Registered memory: keys, bounds and rights, and plain memory's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.memory_region import (
    Access,
    AccessDenied,
    InvalidRegion,
    MemoryRegion,
    OutOfBounds,
    PlainMemory,
    RegionError,
    RegionTable,
    UnknownKey,
)

MEMORY = PlainMemory(256)
REGION = MemoryRegion(7, 0x1000, 256, Access.REMOTE_READ | Access.REMOTE_WRITE, MEMORY, name="ring")


def test_find() -> None:
    table = RegionTable([REGION])
    assert list(table) == [REGION]
    assert len(table) == 1
    assert table.find(7, 0x1000, 256, Access.REMOTE_READ) is REGION
    assert table.find(7, 0x10FF, 1, Access.REMOTE_WRITE | Access.REMOTE_READ) is REGION


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ((8, 0x1000, 1, Access.REMOTE_READ), UnknownKey, "no memory region has the key 0x8"),
        ((7, 0x0FFF, 1, Access.REMOTE_READ), OutOfBounds, "1 bytes at 0xfff are not within region ring"),
        ((7, 0x1001, 256, Access.REMOTE_READ), OutOfBounds, "which is 256 bytes at 0x1000"),
        ((7, 0x1100, 1, Access.REMOTE_READ), OutOfBounds, "1 bytes at 0x1100"),
        ((7, (1 << 64) - 1, 2, Access.REMOTE_READ), OutOfBounds, "2 bytes at 0xffffffffffffffff"),
        ((7, 0x1000, 8, Access.REMOTE_ATOMIC), AccessDenied, "region ring allows .*, not <Access.REMOTE_ATOMIC"),
    ],
)
def test_what_is_refused_is_named(arguments: tuple[int, int, int, Access], error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence) as caught:
        RegionTable([REGION]).find(*arguments)
    assert isinstance(caught.value, RegionError)


@given(st.integers(0, 0x1200), st.integers(0, 300))
def test_bounds_are_those_of_every_byte(address: int, length: int) -> None:
    inside = all(0x1000 <= byte < 0x1100 for byte in (address, address + max(length, 1) - 1))
    try:
        found = RegionTable([REGION]).find(7, address, length, Access.REMOTE_READ) is REGION
    except OutOfBounds:
        found = False
    assert found is inside or (length == 0 and address == 0x1100)


@pytest.mark.parametrize(
    ("region", "reason"),
    [
        (MemoryRegion(7, 0x2000, 8, Access.REMOTE, MEMORY), "the key 0x7 is taken"),
        (MemoryRegion(1 << 32, 0, 8, Access.REMOTE, MEMORY), "more than 32 bits"),
        (MemoryRegion(1, 0, 257, Access.REMOTE, MEMORY, name="big"), "region big .* size is 257, .* 256 bytes"),
        (MemoryRegion(1, (1 << 64) - 8, 16, Access.REMOTE, MEMORY), "leave the 64-bit address space"),
        (MemoryRegion(1, 4, 8, Access.REMOTE, MEMORY), "not a multiple of 8"),
    ],
)
def test_what_cannot_be_registered_is_named(region: MemoryRegion, reason: str) -> None:
    table = RegionTable([REGION])
    with pytest.raises(InvalidRegion, match=reason):
        table.register(region)
    assert list(table) == [REGION]


def test_deregister() -> None:
    table = RegionTable([REGION])
    table.deregister(7)
    with pytest.raises(UnknownKey):
        table.find(7, 0x1000, 1, Access.REMOTE_READ)
    with pytest.raises(UnknownKey):
        table.deregister(7)


def test_plain_memory_is_one_memory_seen_as_bytes_and_words() -> None:
    memory = PlainMemory(20)
    assert memory.size == 20
    memory.store(8, 0x0102030405060708)
    assert memory.view[8:16] == bytes([8, 7, 6, 5, 4, 3, 2, 1])
    memory.view[0] = 9
    assert memory.load(0) == 9
    memory.words(0, 2)[1] = 3
    assert memory.load(8) == 3
    assert memory.compare_swap(8, 4, 5) == 3
    assert memory.compare_swap(8, 3, 5) == 3
    assert memory.fetch_add(8, (1 << 64) - 1) == 5
    assert memory.load(8) == 4


def test_memory_may_be_larger_than_the_hosts_and_costs_what_is_written() -> None:
    """The paper's buffers are 80 GB a node; the DRAM pool's part is 1.5 TB."""
    memory = PlainMemory(1_500_000_000_001)
    assert (memory.size, bytes(memory.view[-2:])) == (1_500_000_000_001, b"\0\0")
    memory.view[-1] = 7
    memory.store(memory.size - 9 & ~7, 3)
    assert (memory.view[-1], memory.load(memory.size - 9 & ~7)) == (7, 3)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 4097])
def test_plain_memory_has_the_size_that_it_was_asked_for(size: int) -> None:
    assert bytes(PlainMemory(size).view) == bytes(size)
    assert len(PlainMemory(size).words(0, 1 << 20)) == size // 8
