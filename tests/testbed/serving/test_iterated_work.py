"""Host work over arrays beside the processor that machines have: the same laws, and the same sums beside neighbours."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.machine import Deliver
from testbed.serving.host_work import Contention, HostWork, ModelledProcessor
from testbed.serving.iterated_work import QUIET, Disturbance, in_order

MEASURED = Contention(threads=12, slowdown=1.4, stalls_per_ms=0.2, stall_ms=(0.1, 2.0, 4.0), wake_ms=(0.01, 0.3))
pieces = st.lists(st.tuples(st.integers(0, 50_000_000), st.integers(0, 9_000_000)), min_size=1, max_size=40)


def arrays(rows):
    return (np.array(column, np.int64) for column in zip(*sorted(rows), strict=True))


def beside(seed=1):
    chance = np.random.default_rng(seed).random(10_007)
    stall, wake = (np.array(values) * 1e6 for values in (MEASURED.stall_ms, MEASURED.wake_ms))
    return Disturbance(MEASURED.slowdown, MEASURED.stalls_per_ms / 1e6, stall, wake, chance)


def by_the_processor(arrivals, amounts, processor):
    """When each piece is done, in order."""
    ends, waiting = [], list(zip(arrivals.tolist(), amounts.tolist(), strict=True))
    for ticket, (at, amount) in enumerate(waiting):
        processor.submit(at, HostWork(ticket, "api", "tokenise", amount))
    while (due := processor.deadline()) is not None:
        ends += [due for effect in processor.wake(due) if isinstance(effect, Deliver)]
    return ends


@given(pieces)
def test_without_neighbours_pieces_end_when_the_processor_ends_them(rows):
    arrivals, amounts = arrays(rows)
    expected = by_the_processor(arrivals, amounts, ModelledProcessor())
    assert in_order(arrivals, amounts, QUIET, compiled=False).tolist() == expected


@given(pieces)
def test_compiled_equals_plain_and_nobody_overtakes(rows):
    arrivals, amounts = arrays(rows)
    plain = in_order(arrivals, amounts, beside(), compiled=False)
    assert plain.tolist() == in_order(arrivals, amounts, beside()).tolist()
    assert (np.diff(plain, prepend=0) >= amounts * MEASURED.slowdown - 1).all()
    assert (plain - arrivals >= amounts).all()


def test_neighbours_cost_on_the_whole_what_they_cost_the_processor():
    arrivals = np.arange(3_000, dtype=np.int64) * 20_000_000
    amounts = np.full(3_000, 5_000_000, np.int64)
    ours = (in_order(arrivals, amounts, beside()) - arrivals).mean()
    theirs = (np.array(by_the_processor(arrivals, amounts, ModelledProcessor(MEASURED, Random(3)))) - arrivals).mean()
    assert ours == pytest.approx(theirs, rel=0.03)
