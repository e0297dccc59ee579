"""The modelled processor: one thing at a time in a process, processes beside each other, and measured contention."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from testbed.events.host_events import HostOperation
from testbed.machine import Deliver, Emit, MachineError
from testbed.serving.host_work import Contention, HostWork, HostWorked, ModelledProcessor, contention_of, quantile
from testbed.units import MILLISECOND


def ends(processor: ModelledProcessor) -> list[tuple[int, str, int]]:
    """(t, owner, ticket) of all that is under way."""
    found: list[tuple[int, str, int]] = []
    while (due := processor.deadline()) is not None:
        for effect in processor.wake(due):
            if isinstance(effect, Deliver):
                assert isinstance(effect.message, HostWorked)
                found.append((due, effect.to, effect.message.ticket))
    return found


def test_owners_work_beside_each_other_and_each_ones_pieces_in_order() -> None:
    processor = ModelledProcessor()
    for owner, ticket, amount in (("core", 1, 50), ("core", 2, 10), ("worker", 3, 20)):
        assert processor.submit(100, HostWork(ticket, owner, "update", amount)) == ()
    assert ends(processor) == [(120, "worker", 3), (150, "core", 1), (160, "core", 2)]


def test_owners_of_one_process_take_turns() -> None:
    processor = ModelledProcessor(processes=(("api",), ("core", "worker")))
    for owner, ticket in (("core", 1), ("worker", 2), ("api", 3), ("core", 4)):
        processor.submit(0, HostWork(ticket, owner, "update", 10))
    assert ends(processor) == [(10, "core", 1), (10, "api", 3), (20, "worker", 2), (30, "core", 4)]


def test_a_piece_is_logged_as_it_was_asked_for_and_as_it_took() -> None:
    processor = ModelledProcessor()
    processor.submit(5, HostWork(1, "core", "update", 7))
    emit, deliver = processor.wake(12)
    assert emit == Emit(HostOperation("core", "update", 7, 7))
    assert deliver == Deliver("core", HostWorked(1, "update", 7))


def test_anything_else_is_not_for_a_processor() -> None:
    with pytest.raises(MachineError, match="str"):
        ModelledProcessor().submit(0, "work")
    with pytest.raises(ValueError, match="generator"):
        ModelledProcessor(Contention(threads=1))


def test_contention_slows_stalls_and_delays_wakes_as_it_was_measured() -> None:
    contention = Contention(12, slowdown=1.5, stalls_per_ms=0.2, stall_ms=(2.0, 4.0), wake_ms=(1.0, 3.0))
    processor = ModelledProcessor(contention, Random(7))
    elapsed, now = [], 0
    for ticket in range(4_000):
        now += 1_000 * MILLISECOND  # it has slept since
        processor.submit(now, HostWork(ticket, "core", "update", 10 * MILLISECOND))
        elapsed.append(ends(processor)[0][0] - now)
    # 10 ms of work run 15 ms, lose the core three times for 3 ms and wait 2 ms for it at first.
    assert fmean(elapsed) / MILLISECOND == pytest.approx(15 + 3 * 3 + 2, rel=0.03)
    assert min(elapsed) >= 16 * MILLISECOND


def test_work_that_follows_without_sleep_does_not_wait_for_a_core_again() -> None:
    processor = ModelledProcessor(Contention(4, wake_ms=(1.0,)), Random(1))
    for ticket in (1, 2):
        processor.submit(100, HostWork(ticket, "core", "update", 10))
    first, second = (t for t, _, _ in ends(processor))
    assert (first, second) == (100 + 10 + MILLISECOND, 100 + 20 + MILLISECOND)


def test_the_same_seed_gives_the_same_waits() -> None:
    def run() -> list[tuple[int, str, int]]:
        processor = ModelledProcessor(Contention(4, 1.2, 3.0, (0.1, 5.0), (0.0, 2.0)), Random(3))
        for ticket in range(50):
            processor.submit(ticket * MILLISECOND, HostWork(ticket, "core", "update", MILLISECOND))
        return ends(processor)

    assert run() == run()


def test_quantiles_are_interpolated() -> None:
    assert quantile((4.0,), 0.9) == 4.0
    assert [quantile((0.0, 10.0, 40.0), share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0.0, 5.0, 10.0, 25.0, 40.0]


@pytest.mark.parametrize(("threads", "row"), [(0, None), (1, 4), (4, 4), (11, 4), (12, 12), (99, 12)])
def test_the_row_is_the_largest_that_is_not_above_the_neighbours_threads(threads: int, row: int | None) -> None:
    rows = (Contention(4), Contention(12))
    found = contention_of(rows, threads)
    assert (found.threads if found else None) == row
