"""What runnerd writes down of a run: in its own records, and in a run folder that may not be what it seems."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from topologies.runnerd_books import LAST_WORDS, Books

RUN = "20260101-000000-0a1b2c"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def books(tmp_path: Path, runs: Path) -> Books:
    records = tmp_path / "records"
    records.mkdir()
    return Books(records, runs)


def said(runs: Path, file: str = "outcome.json") -> Any:
    return json.loads((runs / RUN / "control" / file).read_bytes())


def test_a_run_is_known_by_its_record_its_folder_or_a_link_that_leads_nowhere(books: Books, runs: Path) -> None:
    assert not books.know(RUN)
    (runs / RUN).symlink_to(runs / "nowhere")
    assert books.know(RUN)
    (runs / RUN).unlink()
    books.record(RUN, state="running", pid=7, start=1)
    assert books.know(RUN)
    assert list(books.under_way()) == [(RUN, {"state": "running", "pid": 7, "start": 1})]


@pytest.mark.root
def test_a_run_that_said_nothing_gets_its_last_lines_as_the_reason(books: Books, runs: Path) -> None:
    books.log_file(RUN).write_text("".join(f"line {number}\n" for number in range(40)))
    books.finished(RUN, 3, cancelled=False, cleaned=True)
    assert said(runs)["outcome"] == "errored"
    assert said(runs)["detail"].split("\n") == [f"line {number}" for number in range(40 - LAST_WORDS, 40)]
    assert said(runs, "runner.json") == {"state": "finished", "rc": 3, "cancelled": False, "cleaned": True}
    assert list(books.under_way()) == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("word", "cancelled", "outcome"),
    [({"state": "finished", "outcome": "passed"}, False, "passed"),
     ({"state": "finished", "outcome": "cancelled"}, True, "cancelled"),
     ({"state": "finished", "outcome": "cancelled"}, False, "lost"),
     ({"state": "running"}, False, "lost")],
)  # fmt: skip
def test_a_lost_runs_own_word_stands_unless_it_tells_of_a_cancel_that_nobody_asked_for(
    books: Books, runs: Path, word: dict[str, str], cancelled: bool, outcome: str
) -> None:
    (runs / RUN / "control").mkdir(parents=True)
    (runs / RUN / "control" / "outcome.json").write_text(json.dumps(word))
    books.lost(RUN, cancelled=cancelled, cleaned=True)
    assert said(runs)["outcome"] == outcome
    assert said(runs, "runner.json")["state"] == "lost"


@pytest.mark.root
def test_nothing_is_written_into_a_folder_that_is_not_roots(books: Books, runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (runs / RUN).symlink_to(elsewhere)
    books.log_file(RUN).write_text("")
    books.finished(RUN, 0, cancelled=False, cleaned=True)
    (runs / RUN).unlink()
    (runs / RUN).mkdir()
    os.chown(runs / RUN, 65534, 65534)
    books.finished(RUN, 0, cancelled=False, cleaned=True)
    assert list(elsewhere.iterdir()) == []
    assert list((runs / RUN).iterdir()) == []
