from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events import log
from testbed.events.client_events import TokenReceived
from testbed.events.fidelity_events import CpuMeasured, FidelityJudged, RnicMeasured
from testbed.events.log import (
    CUT_MARK,
    LINE_LIMIT,
    START,
    BadCursor,
    BadRecord,
    Cursor,
    EventWriter,
    LineTooLong,
    Record,
    TimeWentBack,
    check_log,
    decode_record,
    encode_record,
    read_log,
    tag_of,
    tail,
    tail_bytes,
)
from testbed.events.run_events import LineLogged, NodeHeartbeat
from testbed.events.schema import AnyEvent, SlotMoved, TokensSampled
from tests.testbed.events.logs import write_log

MOVED = SlotMoved(slot=3, incarnation=1, before="empty", after="prefill_pending", request=7)


def test_no_event_has_a_field_that_the_record_needs_for_itself() -> None:
    for event in get_args(AnyEvent):
        assert not {"t", "node", "seq", "type"} & set(event.__struct_fields__), event


def test_a_record_is_one_flat_json_object_with_the_header_first() -> None:
    line = encode_record(1500, "dpu0", 4, MOVED)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    told = json.loads(line)
    assert list(told) == ["t", "node", "seq", "type", "slot", "incarnation", "before", "after", "request"]
    assert told["t"] == 1500
    assert told["type"] == "slot.moved"


def test_an_event_without_fields_survives() -> None:
    assert decode_record(encode_record(0, "n", 0, NodeHeartbeat())) == Record(0, "n", 0, NodeHeartbeat())


@given(t=st.integers(-(2**62), 2**62), node=st.text(max_size=20), seq=st.integers(0, 2**40), text=st.text())
def test_any_text_survives(t: int, node: str, seq: int, text: str) -> None:
    record = Record(t, node, seq, LineLogged(text, severity="error"))
    assert decode_record(encode_record(*record)) == record


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"nonsense",
        b'{"t":1,"node":"a","seq":0,"type":"no.such"}',
        b'{"t":1,"node":"a","seq":0,"type":"token.received","name":"x","index":0,"count":1,"more":2}',
        b'{"t":1,"node":"a","seq":0,"type":"token.received","name":"x"}',
        b'{"t":1,"node":"a","seq":0,"type":"token.received","name":"x","index":"0"}',
        b'{"t":1,"node":"a","type":"node.heartbeat"}',
        b'{"t":1,"node":"a","seq":0,"more":1,"type":"node.heartbeat"}',
        b'{"t":1.5,"node":"a","seq":0,"type":"node.heartbeat"}',
        b'{"type":"node.heartbeat","t":1,"node":"a","seq":0}',
    ],
)
def test_a_line_that_is_not_of_the_schema_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_record(line)


def test_the_writer_numbers_without_gaps_and_flushes_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events" / "dpu0.jsonl"
    with EventWriter(path, "dpu0") as writer:
        for t in (5, 5, 9):
            writer.write(t, MOVED)
        assert path.read_bytes() == b""
        writer.flush()
        assert path.read_bytes().count(b"\n") == 3
    assert [(r.t, r.node, r.seq) for r in read_log(path)] == [(5, "dpu0", 0), (5, "dpu0", 1), (9, "dpu0", 2)]
    assert check_log(path) == 3


def test_the_writer_refuses_time_that_goes_back_and_takes_nothing(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "a.jsonl", "a") as writer:
        writer.write(5, MOVED)
        with pytest.raises(TimeWentBack, match="an event at 4 after one at 5"):
            writer.write(4, MOVED)
        writer.write(5, NodeHeartbeat())
    assert [r.event for r in read_log(tmp_path / "a.jsonl")] == [MOVED, NodeHeartbeat()]


def test_much_is_written_without_a_flush(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "a.jsonl", "a") as writer:
        for t in range(5000):
            writer.write(t, MOVED)
        assert (tmp_path / "a.jsonl").stat().st_size > 100_000


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "a.jsonl", "a")
    writer.write(0, MOVED)
    writer.close()
    writer.close()
    assert check_log(tmp_path / "a.jsonl") == 1


def test_what_a_full_disk_refused_is_kept_and_written_later(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "a.jsonl", "a")
    writer.write(1, MOVED)
    good = writer._fd
    writer._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    os.close(writer._fd)
    writer._fd = good
    writer.write(2, MOVED)
    writer.close()
    assert [r.seq for r in read_log(tmp_path / "a.jsonl")] == [0, 1]


def test_half_a_line_at_the_end_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_log(tmp_path, "a", [(1, MOVED)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert len(list(read_log(path))) == 1
    records, cursor = tail(tmp_path)
    assert len(records) == 1
    assert tail(tmp_path, cursor) == ([], cursor)
    second = encode_record(1, "a", 1, MOVED)
    path.write_bytes(whole + second)
    assert [r.seq for r in tail(tmp_path, cursor)[0]] == [1]


def test_a_writer_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_log(tmp_path, "a", [(1, MOVED), (2, MOVED)])
    with path.open("ab") as file:
        file.write(b'{"t":3,"node":"a","se')
    with EventWriter(path, "a") as writer:
        assert writer.seq == 2
        with pytest.raises(TimeWentBack):
            writer.write(1, MOVED)
        writer.write(3, NodeHeartbeat())
    assert check_log(path) == 3


def test_a_bad_line_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_record(0, "a", 0, MOVED) + b"garbage\n")
    with pytest.raises(BadRecord, match=r"a\.jsonl: line 2: "):
        list(read_log(path))
    with pytest.raises(BadRecord, match=r"a\.jsonl from byte 0: line 2: "):
        tail(tmp_path)
    path.write_bytes(b'{"t":0,"node":"\xff","seq":0,"type":"node.heartbeat"}\n')
    with pytest.raises(BadRecord):
        list(read_log(path))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ((1, "a", 2), "after 0 comes 1"),
        ((1, "a", 0), "seq is 0"),
        ((1, "b", 1), "node is 'b' in the file of 'a'"),
        ((0, "a", 1), "t goes back from 1 to 0"),
    ],
)
def test_the_check_finds_what_a_writer_would_never_do(
    tmp_path: Path, second: tuple[int, str, int], reason: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_record(1, "a", 0, MOVED) + encode_record(*second, MOVED))
    with pytest.raises(BadRecord, match=reason):
        check_log(path)


@pytest.mark.parametrize("text", ["x" * (10 << 20), "é" * (4 << 20), "\n" * (2 << 20), "\x01" * LINE_LIMIT])
def test_a_huge_line_is_cut_with_a_mark(tmp_path: Path, text: str) -> None:
    write_log(tmp_path, "a", [(0, LineLogged(text)), (1, MOVED)])
    first, second = read_log(tmp_path / "a.jsonl")
    assert isinstance(first.event, LineLogged)
    assert first.event.text.endswith(CUT_MARK)
    assert text.startswith(first.event.text.removesuffix(CUT_MARK))
    assert len(encode_record(*first)) <= LINE_LIMIT
    assert second.event == MOVED


def test_a_long_list_of_texts_is_cut_with_a_mark() -> None:
    event = FidelityJudged("invalid", tuple(f"reason {n} " + "x" * 90 for n in range(20_000)))
    cut = decode_record(encode_record(0, "bench", 0, event)).event
    assert isinstance(cut, FidelityJudged)
    assert cut.reasons[-1] == CUT_MARK
    assert cut.reasons[:-1] == event.reasons[: len(cut.reasons) - 1]


def test_numbers_are_never_cut() -> None:
    with pytest.raises(LineTooLong, match=r"tokens\.sampled"):
        encode_record(0, "gpu0", 0, TokensSampled(1, tuple(range(400_000)), (1,)))


def test_the_tag_is_the_noun_and_verb() -> None:
    assert tag_of(RnicMeasured("gpu0", 0, 0, 0, 0, 0, 0)) == "rnic.measured"
    assert tag_of(CpuMeasured(0.5, 0.5)) == "cpu.measured"


# --- cursors -----------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,14}", fullmatch=True), st.integers(0, 2**59), max_size=5))
def test_a_cursor_survives_its_text(offsets: dict[str, int]) -> None:
    cursor = Cursor(offsets)
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["a", "a:", ":5", "a:-1", "a:5,", ",a:5", "a:5,a:6", "a:٣", "a:" + "9" * 40, "a:1.5", " "]
)
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        Cursor.parse(text)


def test_no_folder_has_no_news(tmp_path: Path) -> None:
    assert tail_bytes(tmp_path / "none") == ([], START)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_reading_in_cuts_of_any_size_is_reading_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """F2: a reader that joins and goes on from its cursor misses nothing and has nothing twice."""
    folder = tmp_path_factory.mktemp("events")
    lengths = data.draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(st.integers(0, 200), max_size=8)))
    whole = {
        node: b"".join(encode_record(n, node, n, LineLogged("x" * size)) for n, size in enumerate(sizes))
        for node, sizes in lengths.items()
    }
    had: dict[str, bytes] = {}
    cursor = START
    for node, content in whole.items():
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            with (folder / f"{node}.jsonl").open("ab") as file:
                file.write(part)
            found, cursor = tail_bytes(folder, Cursor.parse(str(cursor)), data.draw(st.integers(1, 600)))
            for name, lines in found:
                assert lines.endswith(b"\n")
                had[name] = had.get(name, b"") + lines
    for _ in range(200):
        found, cursor = tail_bytes(folder, cursor, 64)
        if not found:
            break
        for name, lines in found:
            had[name] = had.get(name, b"") + lines
    assert had == {node: content for node, content in whole.items() if content}


def test_a_busy_file_does_not_starve_a_quiet_one(tmp_path: Path) -> None:
    write_log(tmp_path, "busy", [(t, LineLogged("x" * 100)) for t in range(1000)])
    write_log(tmp_path, "quiet", [(0, TokenReceived("r", 0))])
    found, _ = tail_bytes(tmp_path, START, 2000)
    assert [node for node, _ in found] == ["quiet", "busy"]
    assert sum(len(lines) for _, lines in found) <= 2000


def test_the_tail_takes_no_file_that_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    assert log.log_files(tmp_path) == []
    assert tail_bytes(tmp_path) == ([], START)


def test_links_and_pipes_are_no_logs(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "elsewhere.jsonl").write_bytes(b"a secret\n")
    (events / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    os.mkfifo(events / "pipe.jsonl")
    (tmp_path / "linked").symlink_to(tmp_path)
    assert tail_bytes(events) == ([], START)
    assert tail_bytes(tmp_path / "linked") == ([], START)
