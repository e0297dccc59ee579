from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from testbed.events.log import Record
from testbed.events.ordering import merge, merge_records, order
from testbed.events.run_events import LineLogged, NodeHeartbeat
from tests.testbed.events.logs import write_log

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
