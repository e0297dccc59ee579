"""A node's run inside an asyncio loop: deadlines, messages from handlers, verbs through a real NIC, the ways to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from emulators.nic_pair import OWNER, REGION, REQUESTER, NicPair
from emulators.node import NIC_SOCKET_VARIABLE, NodeRun
from emulators.node_asyncio import AsyncNode
from testbed.events.log import Record, read_log
from testbed.events.run_events import LineLogged
from testbed.machine import Completion, Effects, Emit, FetchAdd, Message, RemoteAddress
from testbed.units import MILLISECOND, Nanoseconds


class Poke(Message, frozen=True):
    """Asks the adder to add one."""


class Adder:
    """Adds one to the owner's word whenever it is poked, and each 10 ms of true time; says what it found."""

    name = "adder"

    def __init__(self, *, ticks: int = 0, fails_at: int = -1) -> None:
        self.ticket = 0
        self.ticks = ticks
        self.due: Nanoseconds | None = 10 * MILLISECOND if ticks else None
        self.fails_at = fails_at
        self.wakes: list[Nanoseconds] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        if isinstance(message, Completion):
            return (Emit(LineLogged(text=f"{message.status.name} {message.original}")),)
        return self._add()

    def wake(self, now: Nanoseconds) -> Effects:
        assert self.due is not None
        if len(self.wakes) == self.fails_at:
            raise RuntimeError("this wake was one too many")
        self.wakes.append(now - self.due)
        self.due = self.due + 10 * MILLISECOND if len(self.wakes) < self.ticks else None
        return self._add()

    def deadline(self) -> Nanoseconds | None:
        return self.due

    def _add(self) -> Effects:
        self.ticket += 1
        return (FetchAdd(self.ticket, OWNER, remote=RemoteAddress(REGION.address, REGION.key), addend=1),)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[NicPair]:
    with NicPair() as pair:
        pair.verbs.pop(REQUESTER).close()
        monkeypatch.setenv(NIC_SOCKET_VARIABLE, str(pair.socket(REQUESTER)))
        yield pair


def _open_barrier(folder: Path) -> None:
    epoch = time.monotonic_ns() + 20 * MILLISECOND
    draft = folder / "control" / "draft"
    draft.write_text(json.dumps({"epoch_monotonic_ns": epoch, "dilation": 2.0}))
    draft.rename(folder / "control" / "start.json")


def _lines(folder: Path) -> list[str]:
    records: list[Record] = list(read_log(folder / "events" / f"{REQUESTER}.jsonl"))
    return [record.event.text for record in records if isinstance(record.event, LineLogged)]


def _live(pair: NicPair, adder: Adder, body: Callable[[AsyncNode], Coroutine[object, object, None]]) -> None:
    run = NodeRun(pair.folder, REQUESTER)
    run.connect()
    run.attach([adder])

    async def live() -> None:
        await asyncio.wait_for(body(AsyncNode(run)), 20)

    try:
        asyncio.run(live())
    finally:
        run.finish(0)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for is in another process
        await asyncio.sleep(0.005)


def test_deadlines_and_messages_reach_machines_and_verbs_come_back(pair: NicPair) -> None:
    adder = Adder(ticks=20)

    async def body(node: AsyncNode) -> None:
        _open_barrier(pair.folder)
        assert await node.barrier()
        for _ in range(30):
            node.deliver("adder", Poke())
            await asyncio.sleep(0.001)
        await _until(lambda: pair.memory.load(0) == 50 and node.run.verbs is not None and not node.run.verbs.in_flight)
        (pair.folder / "control" / "stop").touch()
        await node.stopped()

    _live(pair, adder, body)
    assert len(adder.wakes) == 20
    assert min(adder.wakes) >= 0, "a wake came early"
    assert _lines(pair.folder) == [f"SUCCESS {before}" for before in range(50)]


def test_sigterm_ends_it_before_the_barrier_and_after(pair: NicPair) -> None:
    async def before(node: AsyncNode) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await node.barrier()
        node.close()

    _live(pair, Adder(), before)

    async def after(node: AsyncNode) -> None:
        _open_barrier(pair.folder)
        assert await node.barrier()
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        await node.stopped()

    _live(pair, Adder(), after)


def test_what_a_machine_raises_reaches_whoever_waits(pair: NicPair) -> None:
    async def body(node: AsyncNode) -> None:
        _open_barrier(pair.folder)
        assert await node.barrier()
        await node.stopped()

    with pytest.raises(RuntimeError, match="one too many"):
        _live(pair, Adder(ticks=20, fails_at=3), body)


def test_a_nic_that_dies_answers_every_verb_and_is_named_in_the_log(pair: NicPair) -> None:
    async def body(node: AsyncNode) -> None:
        _open_barrier(pair.folder)
        assert await node.barrier()
        os.kill(pair.processes[OWNER].pid, signal.SIGSTOP)
        for _ in range(3):
            node.deliver("adder", Poke())
        await asyncio.sleep(0.02)
        pair.processes[REQUESTER].kill()
        await _until(lambda: node.run.verbs is not None and not node.run.verbs.in_flight)
        node.deliver("adder", Poke())
        await _until(lambda: "dpu0: the soft RNIC is gone" in _lines(pair.folder))
        await _until(lambda: _lines(pair.folder).count("FLUSHED 0") == 4)
        node.run.stop()
        await node.stopped()

    try:
        _live(pair, Adder(), body)
    finally:
        os.kill(pair.processes[OWNER].pid, signal.SIGCONT)
    assert _lines(pair.folder).count("FLUSHED 0") == 4


def test_the_blocking_loop_does_the_same_over_a_real_nic(pair: NicPair) -> None:
    run = NodeRun(pair.folder, REQUESTER)
    run.connect()
    adder = Adder(ticks=20)
    run.attach([adder])
    _open_barrier(pair.folder)
    run.announce()
    epoch = run.look_for_epoch()
    assert epoch is not None
    run.start(epoch)
    signal.signal(signal.SIGALRM, lambda *_: run.stop())
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        run.loop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    run.finish(0)
    assert len(adder.wakes) == 20
    assert min(adder.wakes) >= 0
    assert _lines(pair.folder) == [f"SUCCESS {before}" for before in range(20)]
