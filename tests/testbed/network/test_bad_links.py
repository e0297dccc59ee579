"""PacketWire over bad links, a kind of fault at a time: bytes equal, each verb answered once, repair within bounds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from testbed.machine import Completion, CompletionStatus, FetchAdd, Read, Received, Send, Write
from testbed.network.link import Faults
from testbed.network.packet_wire import PacketWire

RATE = 100_000_000_000
MTU = 1024
SIZES = (0, 1, MTU - 1, MTU, MTU + 1, 1 << 17)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("kind", ["loss", "duplication", "reordering", "corruption"])
def test_faults_are_repaired_within_bounds(
    make_driver: Callable[..., Any], make_star: Callable[..., Any], kind: str, rate: float, soak: bool
) -> None:
    plan = make_star("ab", rate=RATE, path_mtu=MTU)
    random = Random(f"{kind} {rate}")
    driver = make_driver(PacketWire, plan, rng=random, faults=Faults(**{kind: rate}))
    needed = ticket = 0
    place = 8  # each turn has its own: without a fence a READ that is asked again may see a later WRITE (IBA 10.8)
    expected: list[Completion] = []
    texts = []
    for size in SIZES * (10 if soak else 2):
        data = random.randbytes(size)
        for verb, done in (
            (Write(ticket, "b", remote=driver.remote(place), data=data), Completion(ticket)),
            (Read(ticket + 1, "b", remote=driver.remote(place), length=size), Completion(ticket + 1, data=data)),
            (FetchAdd(ticket + 2, "b", remote=driver.remote(), addend=1), Completion(ticket + 2, original=ticket // 4)),
            (Send(ticket + 3, "b", data=data), Completion(ticket + 3)),
        ):
            driver.post("a", verb)
            expected.append(done)
        texts.append(Received("a", data))
        ticket += 4
        place += size
        needed += 3 * max(1, -(-size // MTU)) + 3
    driver.run()
    assert [message for _, node, message in driver.told if node == "a"] == expected
    assert [message for _, node, message in driver.told if node == "b"] == texts
    assert driver.memories["b", "memory"].load(0) == ticket // 4
    assert all(done.status is CompletionStatus.SUCCESS for done in expected)
    a, b = driver.wire.counters("a"), driver.wire.counters("b")
    # Each fault on one of the four links of a round trip costs at most a window (128) of repetitions.
    assert a["sent"] + b["sent"] <= needed * (1 + 4 * 128 * rate) + 4 * 128
    assert (a["icrc_errors"] + b["icrc_errors"] > 0) <= (kind == "corruption")
    if rate == 0.05:
        assert (a["resent"] > 0) or kind == "duplication"
    # A timeout needs a packet that was lost on one of its two links; twice the mean leaves room for chance.
    assert a["timeouts"] <= 2 * 2 * rate * (a["sent"] + b["sent"]) + 8
