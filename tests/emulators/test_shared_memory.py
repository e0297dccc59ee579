"""Shared memory: the LocalMemory contract, atomics that lose nothing between processes, no names left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.shared_memory import NotSealed, SharedMemory, WordOutOfRange
from testbed.network.memory_region import LocalMemory, PlainMemory

WORD = st.integers(0, 2**64 - 1)
OFFSET = st.integers(0, 7).map(lambda word: word * 8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), OFFSET, WORD),
        st.tuples(st.just("compare_swap"), OFFSET, WORD, WORD),
        st.tuples(st.just("swap_hit"), OFFSET, WORD),
        st.tuples(st.just("fetch_add"), OFFSET, WORD),
        st.tuples(st.just("write"), OFFSET, st.binary(max_size=16)),
    ),
    max_size=30,
)


def _play(memory: LocalMemory, steps: list[tuple[object, ...]]) -> list[object]:
    seen: list[object] = []
    for kind, offset, *rest in steps:
        assert isinstance(offset, int)
        if kind == "store":
            memory.store(offset, rest[0])  # type: ignore[arg-type]
        elif kind == "compare_swap":
            seen.append(memory.compare_swap(offset, rest[0], rest[1]))  # type: ignore[arg-type]
        elif kind == "swap_hit":
            seen.append(memory.compare_swap(offset, memory.load(offset), rest[0]))  # type: ignore[arg-type]
        elif kind == "fetch_add":
            seen.append(memory.fetch_add(offset, rest[0]))  # type: ignore[arg-type]
        else:
            data = rest[0]
            assert isinstance(data, bytes)
            memory.view[offset : offset + len(data)] = data
        seen.append(memory.load(offset))
    return [*seen, bytes(memory.view), memory.words(0, 10).tolist()]


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_it_does_what_plain_memory_does(steps: list[tuple[object, ...]]) -> None:
    shared = SharedMemory.create(80)
    try:
        assert _play(shared, steps) == _play(PlainMemory(80), steps)
    finally:
        shared.close()


@pytest.mark.parametrize("offset", [-8, 1, 4, 60, 64, 1 << 40])
@pytest.mark.parametrize("move", ["load", "store", "compare_swap", "fetch_add"])
def test_a_place_that_is_no_word_is_refused_and_changes_nothing(move: str, offset: int) -> None:
    memory = SharedMemory.create(64)
    arguments = {"load": (), "store": (1,), "compare_swap": (0, 1), "fetch_add": (1,)}[move]
    with pytest.raises(WordOutOfRange):
        getattr(memory, move)(offset, *arguments)
    assert bytes(memory.view) == bytes(64)
    memory.close()


INCREMENT = """
import sys
from emulators.shared_memory import SharedMemory
memory = SharedMemory.attach(int(sys.argv[1]), 128)
memory.fetch_add(64, 1)
while memory.load(64) < 2:      # both start together, or there is no contention
    pass
for _ in range(200_000):
    if sys.argv[2] == "fetch_add":
        memory.fetch_add(0, 1)
    else:
        before = memory.load(0)
        while (found := memory.compare_swap(0, before, before + 1)) != before:
            before = found
"""


@pytest.mark.parametrize("how", ["fetch_add", "compare_swap"])
def test_two_processes_lose_no_increment(how: str) -> None:
    memory = SharedMemory.create(128)
    command = [sys.executable, "-c", INCREMENT, str(memory.fd), how]
    children = [subprocess.Popen(command, pass_fds=[memory.fd]) for _ in range(2)]
    try:
        assert [child.wait(timeout=60) for child in children] == [0, 0]
        assert memory.load(0) == 400_000
    finally:
        for child in children:
            child.kill()
            child.wait()
        memory.close()


def test_threads_of_one_process_do_not_share_the_expected_word() -> None:
    # The compared word is passed by address, and the interpreter's lock is dropped during the call.
    memory = SharedMemory.create(64)

    def add() -> None:
        for _ in range(20_000):
            before = memory.load(0)
            while (found := memory.compare_swap(0, before, before + 1)) != before:
                before = found

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.load(0) == 60_000
    memory.close()


def test_both_maps_show_the_same_bytes_and_no_name_is_left() -> None:
    first = SharedMemory.create(4096, populate=True)
    second = SharedMemory.attach(os.dup(first.fd), 4096)
    first.view[100:105] = b"hello"
    assert bytes(second.view[100:105]) == b"hello"
    second.words(8, 2)[1] = 2**64 - 1
    assert first.load(16) == 2**64 - 1
    assert os.readlink(f"/proc/self/fd/{first.fd}").startswith("/memfd:"), "it has a name that outlives it"
    first.close()
    assert bytes(second.view[100:105]) == b"hello"
    second.close()


def test_memory_that_could_be_shrunk_is_not_mapped(tmp_path: Path) -> None:
    fd = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(NotSealed, match="shrunk"):
        SharedMemory.attach(fd, 4096)
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(NotSealed, match="not a memfd"):
        SharedMemory.attach(plain, 4096)
    sealed = SharedMemory.create(64)
    with pytest.raises(NotSealed, match="it has 64"):
        SharedMemory.attach(os.dup(sealed.fd), 128)
    with pytest.raises(PermissionError):
        os.ftruncate(sealed.fd, 8)
    sealed.close()


def test_closing_while_a_view_is_out_keeps_the_view_usable() -> None:
    memory = SharedMemory.create(64)
    words = memory.words(0, 2)
    memory.close()
    memory.close()
    words[0] = 7
    assert words.tolist() == [7, 0]
    with pytest.raises(WordOutOfRange):
        memory.load(0)


def test_open_and_close_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        SharedMemory.create(8192).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_has_at_least_one_word() -> None:
    with pytest.raises(ValueError, match="size 7"):
        SharedMemory.create(7)
