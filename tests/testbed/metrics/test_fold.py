from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events.log import Record
from testbed.metrics.fold import Folding, UnknownFold
from testbed.metrics.table import FOLDS
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.host_stories import host_story
from tests.testbed.metrics.isolation_stories import isolation_run
from tests.testbed.metrics.stories import lookups, nonsense, outage, sensible, small_run


def both_runs() -> list[Record]:
    """A run with steps and slots, one with paths and hops, one with a port's forecast, one with a host that works
    beside a neighbour, one whose scheduler dies, one with a prefix cache: no system has all events.
    """
    told = [story.records() for story in (host_story(steps=3), outage(), lookups())]
    return [*small_run(), *agentic_run(), *isolation_run(), *(record for records in told for record in records)]


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    records=st.one_of(nonsense(), sensible(), st.builds(agentic_run, st.integers(1, 2), st.integers(1, 3))),
)
def test_a_snapshot_and_the_events_after_it_give_the_state_after_all(
    name: str, data: st.DataObject, records: list[Record]
) -> None:
    fold = FOLDS[name]
    cut = data.draw(st.integers(0, len(records)))
    whole = Folding({name: fold}).take_all(records)
    early = Folding({name: fold}).take_all(records[:cut])
    late = Folding({name: fold})
    late.restore(early.snapshot())
    late.take_all(records[cut:])
    assert late.snapshot() == whole.snapshot()
    assert msgspec.json.encode(late.result(name)) == msgspec.json.encode(whole.result(name))


@pytest.mark.parametrize("name", FOLDS)
def test_a_result_does_not_move_when_the_fold_goes_on(name: str) -> None:
    records = both_runs()
    for cut in (len(records) // 3, len(records) // 2, len(records) - 5):
        folding = Folding({name: FOLDS[name]}).take_all(records[:cut])
        result = folding.result(name)
        before = msgspec.json.encode(result)
        folding.take_all(records[cut:])
        assert msgspec.json.encode(result) == before


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=15, deadline=None)
@given(records=nonsense())
def test_an_event_that_a_fold_does_not_take_changes_nothing(name: str, records: list[Record]) -> None:
    fold = FOLDS[name]
    state = fold.start()
    for record in records:
        before = msgspec.msgpack.encode(state)
        state = fold.step(state, record)
        if type(record.event) not in fold.takes:
            assert msgspec.msgpack.encode(state) == before


def test_every_fold_has_something_to_say_of_a_run() -> None:
    records = both_runs()
    for name, fold in FOLDS.items():
        folding = Folding({name: fold})
        nothing = msgspec.json.encode(folding.result(name))
        told = msgspec.json.encode(folding.take_all(records).result(name))
        if name != "shares":  # no link is read under the simulated clock
            assert told != nothing, name


def test_the_folds_of_one_folding_do_not_disturb_each_other() -> None:
    records = both_runs()
    together = Folding(FOLDS).take_all(records)
    for name, fold in FOLDS.items():
        alone = Folding({name: fold}).take_all(records)
        assert alone.snapshot()[name] == together.snapshot()[name]


def test_an_unknown_fold_is_named_with_those_there_are() -> None:
    folding = Folding({"ring": FOLDS["ring"]})
    with pytest.raises(UnknownFold, match="no fold is called 'rings'; there are ring"):
        folding.result("rings")
    with pytest.raises(UnknownFold):
        folding.restore({"rings": b""})


def test_a_snapshot_of_another_shape_is_refused_and_nothing_is_restored() -> None:
    folding = Folding(FOLDS).take_all(small_run())
    before = folding.snapshot()
    with pytest.raises(msgspec.ValidationError):
        folding.restore({"ring": before["ring"], "shares": msgspec.msgpack.encode({"lanes": 3})})
    assert folding.snapshot() == before
