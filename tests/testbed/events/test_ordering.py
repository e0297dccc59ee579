from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from testbed.events.log import Record, write_log
from testbed.events.ordering import Reorderer, complete_up_to, merge, merge_records, order
from testbed.events.run_events import LineLogged, NodeHeartbeat, NodeStopped

BEAT = NodeHeartbeat()

logs = st.dictionaries(
    st.sampled_from(["client0", "dpu0", "gpu0"]), st.lists(st.integers(0, 30), max_size=12).map(sorted), min_size=1
).map(lambda told: {node: [Record(t, node, seq, BEAT) for seq, t in enumerate(ts)] for node, ts in told.items()})


def test_time_goes_before_node_and_node_before_number() -> None:
    records = [Record(2, "a", 0, BEAT), Record(1, "b", 7, BEAT), Record(1, "b", 6, BEAT), Record(1, "a", 9, BEAT)]
    assert sorted(records, key=order) == [records[3], records[2], records[1], records[0]]


@given(logs)
def test_a_merge_is_a_sort(told: dict[str, list[Record]]) -> None:
    everything = [record for records in told.values() for record in records]
    assert list(merge_records(*told.values())) == sorted(everything, key=order)


def test_a_folder_merges(tmp_path: Path) -> None:
    write_log(tmp_path, "b", [(1, BEAT), (3, BEAT)])
    write_log(tmp_path, "a", [(1, LineLogged("x")), (2, BEAT)])
    assert [(r.t, r.node, r.seq) for r in merge(tmp_path)] == [(1, "a", 0), (1, "b", 0), (2, "a", 1), (3, "b", 1)]


def test_nothing_is_complete_while_a_node_is_silent() -> None:
    assert complete_up_to({}) is None
    assert complete_up_to({"a": 5, "b": None}) is None
    assert complete_up_to({"a": 5, "b": 3}) == 3


@given(logs, st.data())
def test_what_is_released_is_in_order_and_nothing_later_precedes_it(
    told: dict[str, list[Record]], data: st.DataObject
) -> None:
    """However the files' pieces arrive, the releases put end to end are the merge."""
    reorderer = Reorderer(told)
    rest = {node: list(records) for node, records in told.items()}
    released: list[Record] = []
    while any(rest.values()):
        node = data.draw(st.sampled_from(sorted(node for node, records in rest.items() if records)))
        take = data.draw(st.integers(1, len(rest[node])))
        reorderer.add(rest[node][:take])
        rest[node] = rest[node][take:]
        released += reorderer.release()
    released += reorderer.finish()
    assert released == list(merge_records(*told.values()))


def test_a_silent_node_holds_everything_back_and_a_stopped_one_nothing() -> None:
    reorderer = Reorderer(["a", "b"])
    reorderer.add([Record(1, "a", 0, BEAT), Record(9, "a", 1, BEAT)])
    assert reorderer.release() == []
    stopped = Record(4, "b", 0, NodeStopped(0))
    reorderer.add([stopped])
    assert reorderer.release() == [Record(1, "a", 0, BEAT), stopped]
    reorderer.add([Record(10, "a", 2, NodeStopped(0))])
    assert [record.t for record in reorderer.release()] == [9, 10]


def test_what_happens_at_the_moment_of_the_slowest_is_not_complete() -> None:
    reorderer = Reorderer(["a", "b"])
    reorderer.add([Record(5, "a", 0, BEAT), Record(5, "b", 0, BEAT)])
    assert reorderer.release() == []
    reorderer.add([Record(6, "b", 1, BEAT), Record(5, "a", 1, BEAT)])
    assert reorderer.release() == []
    reorderer.add([Record(7, "a", 2, BEAT)])
    assert [(r.node, r.seq) for r in reorderer.release()] == [("a", 0), ("a", 1), ("b", 0)]
