import os
from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, RemoteAddress, Send, Write
from testbed.network.memory_region import Access
from testbed.network.queue_pair import TRANSITIONS, CannotPost, IllegalMove, Move, State

SIZES = (0, 1, 3, 255, 256, 257, 1024, 4095, 4096, 4097, 65536)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path_mtu", [256, 4096])
def test_write_read_send(make_pair, size, path_mtu):
    pair = make_pair(path_mtu=path_mtu, receives=1)
    data = os.urandom(size)
    pair.post(Write(1, "b", remote=pair.remote(8), data=data))
    pair.post(Read(2, "b", remote=pair.remote(8), length=size))
    pair.post(Send(3, "b", data=data))
    pair.run()
    assert [(c.ticket, c.status) for c in pair.completions["a"]] == [(n, CompletionStatus.SUCCESS) for n in (1, 2, 3)]
    assert pair.memory["b"].view[8 : 8 + size] == data
    assert pair.completions["a"][1].data == data
    assert [r.data for r in pair.received["b"]] == [data]


def draw_verbs(random: Random, count: int, remote) -> list:
    verbs = []
    for ticket in range(1, count + 1):
        size = random.choice((0, 1, 255, 256, 257, 700, 1024, 5000))
        place = remote(random.randrange(0, 100_000))
        match random.randrange(5):
            case 0:
                verbs.append(Write(ticket, "b", remote=place, data=random.randbytes(size)))
            case 1:
                verbs.append(Read(ticket, "b", remote=place, length=size))
            case 2:
                verbs.append(Send(ticket, "b", data=random.randbytes(size)))
            case 3:
                word = remote(200_000 + 8 * random.randrange(3))
                verbs.append(CompareSwap(ticket, "b", remote=word, expected=random.randrange(3), desired=random.randrange(3)))
            case _:
                verbs.append(FetchAdd(ticket, "b", remote=remote(210_000), addend=random.randrange(1 << 40)))
    return verbs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from((0, 0.02, 0.2)),
    duplication=st.sampled_from((0, 0.2)),
    reordering=st.sampled_from((0, 0.2)),
    corruption=st.sampled_from((0, 0.1)),
)
def test_rough_wire_changes_nothing(make_pair, rough_wire, seed, loss, duplication, reordering, corruption):
    random = Random(seed)
    pair = make_pair(path_mtu=256, receives=80, psn=(0xFFFFF0, 0xFFFFFF))
    pair.damage = rough_wire(seed, loss, duplication, reordering, corruption)
    verbs = draw_verbs(random, 40, pair.remote)
    for verb in verbs:
        pair.post(verb)
    pair.run()
    print(pair.ends["a"].counters.as_dict(), pair.ends["b"].counters.as_dict())
    assert [(c.ticket, c.status) for c in pair.completions["a"]] == [(v.ticket, CompletionStatus.SUCCESS) for v in verbs]
