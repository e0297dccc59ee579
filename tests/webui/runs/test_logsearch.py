"""A search of the whole log finds what a look at every line finds, from any place on, whatever the log's length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webui.runs import logsearch
from webui.runs.levels import LEVELS, ORDER, level_of
from webui.runs.logsearch import Place, Wanted, fits, place_of, search_log, whole_log

KINDS = ["line.logged", "token.received", "clock.late", "run.finished", "request.sent"]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["dpu0", "gpu0", "n.1"]),
        st.integers(0, 40),
        st.sampled_from(KINDS),
        st.sampled_from(["one", "TWO", "drei ü", 'q"uote', "<script>"]),
    ),
    max_size=60,
)


def write(folder: Path, told: list[tuple[str, int, str, str]]) -> list[dict[str, Any]]:
    """The log of these events; each node's times rise."""
    for path in folder.glob("*.jsonl"):
        path.unlink()
    events: list[dict[str, Any]] = []
    for node in sorted({node for node, *_ in told}):
        mine = sorted((t, kind, text) for name, t, kind, text in told if name == node)
        lines = [
            {"t": t, "node": node, "seq": seq, "type": kind, "text": text} for seq, (t, kind, text) in enumerate(mine)
        ]
        (folder / f"{node}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        events += lines
    return sorted(events, key=place_of)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    EVENTS,
    st.sampled_from(ORDER),
    st.sampled_from(["", "gpu0"]),
    st.sampled_from(["", "two", "Ü", '"', "SCRIPT", "gpu"]),
    st.integers(1, 7),
)
def test_pages_of_a_search_are_all_that_fits(
    tmp_path: Path, told: list[tuple[str, int, str, str]], level: str, node: str, text: str, limit: int
) -> None:
    events = write(tmp_path, told)
    wanted = Wanted(level, node, text)
    expected = [event for event in reversed(events) if fits(event, wanted)]
    found: list[dict[str, Any]] = []
    before: Place | None = None
    for _ in range(len(events) + 2):
        page = search_log(tmp_path, wanted, before=before, limit=limit)
        found += page.events
        before = page.older
        if before is None:
            break
    assert found == expected
    assert [json.loads(line) for line in whole_log(tmp_path, wanted)] == expected[::-1]


def test_a_search_that_has_read_enough_says_where_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is searched piece by piece, and every piece comes nearer to its beginning."""
    monkeypatch.setattr(logsearch, "BLOCK", 2000)
    monkeypatch.setattr(logsearch, "MOST_BYTES", 10_000)
    rest = "needle" + "x" * 60
    write(tmp_path, [("gpu0", t, "line.logged", rest if t == 3 else "hay" * 20) for t in range(2000)])
    before, pieces, found = None, 0, []
    while True:
        page = search_log(tmp_path, Wanted("debug", "", "needle"), before=before)
        found += page.events
        pieces += 1
        if page.older is None:
            break
        assert before is None or page.older < before
        before = page.older
    assert [event["t"] for event in found] == [3]
    assert pieces > 5


def test_half_a_line_and_a_broken_one_are_left_out(tmp_path: Path) -> None:
    good = '{"t":1,"node":"n","seq":0,"type":"line.logged","text":"a"}\n'
    (tmp_path / "n.jsonl").write_text(good + "{broken\n[1]\n" + '{"t":2,"node":"n","se')
    assert [event["text"] for event in search_log(tmp_path, Wanted()).events] == ["a"]
    assert search_log(tmp_path / "nothing", Wanted()).events == []


def test_f5_a_huge_value_is_cut_with_a_mark(tmp_path: Path) -> None:
    """Known fault F5, as the page gets it from a search; the downloaded file has all of it."""
    write(tmp_path, [("n.1", 1, "line.logged", "y" * 900_000)])
    (event,) = search_log(tmp_path, Wanted()).events
    assert len(event["text"]) < 4100
    assert event["text"].endswith("… (896,000 characters more)")
    assert len(next(whole_log(tmp_path, Wanted()))) > 900_000


@pytest.mark.parametrize("text", ["", "x", "1:n", "a:n:1", "1:n:b", "1::2"])
def test_an_odd_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Place.parse(text)


def test_a_place_is_written_as_it_is_read() -> None:
    assert Place.parse(str(Place(-5, "a:b", 7))) == Place(-5, "a:b", 7)


def test_levels_are_those_of_the_schema() -> None:
    assert LEVELS["clock.late"] == "warning"
    assert LEVELS["token.received"] == "debug"
    assert level_of({"type": "line.logged", "severity": "odd"}) == "info"
    assert level_of({"type": "node.stopped", "code": 1}) == "error"
    assert level_of({"type": "fidelity.judged", "verdict": "faithful"}) == "info"
