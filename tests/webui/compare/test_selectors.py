"""Whose runs can be compared, what a side may be, and what becomes of a run that is not whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.comparison.readings import Ground
from webui.accounts.callers import by_session
from webui.compare import digests as kept
from webui.compare.selectors import NoSuchRun, NotComparable, compare_sides, run_diff

pytestmark = pytest.mark.django_db


def test_two_runs_as_plain_json(user: Any, finished: Callable[..., Any]) -> None:
    a, b = finished(), finished("20261130-110001-0a0a02")
    found = run_diff(caller=by_session(user), a=a.pk, b=b.label)
    assert found.complete
    assert [side.run for side in found.sides] == [a.pk, b.pk]
    assert found.settings == ()
    told = json.loads(json.dumps(msgspec.to_builtins(found)))
    assert told["figures"][0]["metric"] == "ttft_ms.mean"
    assert told["figures"][0]["changes"][1]["reading"] == "same"
    assert "alike" in told["answer"]


def test_another_persons_run_is_not_there(
    make_user: Callable[..., Any], user: Any, finished: Callable[..., Any]
) -> None:
    mine = finished()
    other = make_user("bob")
    for a, b in ((mine.pk, mine.pk), (mine.label, "20261130-110001-0a0a02")):
        with pytest.raises(NoSuchRun):
            run_diff(caller=by_session(other), a=a, b=b)


def test_a_run_alone_is_its_systems_side_by_side(user: Any, swept: Any) -> None:
    sides = compare_sides(caller=by_session(user), told=[swept.pk], wait_s=20)
    assert [one.text for one in sides] == [f"{swept.pk}:blink rate_per_s=50", f"{swept.pk}:other rate_per_s=50"]


@pytest.mark.parametrize("part", ["other", "other rate_per_s=50", "other-rate_per_s=50"])
def test_a_part_is_a_system_a_point_or_a_trial(user: Any, swept: Any, part: str) -> None:
    (one,) = compare_sides(caller=by_session(user), told=[f"{swept.pk}:{part}"])
    assert one.side.variant.name == "other rate_per_s=50"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["ID:warp", "ID"], "has no 'warp'; it has blink rate_per_s=50"),
        (["ID"] * 7, "7 runs: at most 6 can be compared at once"),
    ],
)
def test_what_cannot_be_compared_is_one_line(user: Any, swept: Any, told: list[str], words: str) -> None:
    with pytest.raises(NotComparable, match=words):
        compare_sides(caller=by_session(user), told=[text.replace("ID", swept.pk) for text in told])


def test_runs_take_the_point_that_they_share(user: Any, finished: Callable[..., Any], swept: Any) -> None:
    """A run without a sweep and one with share no point: each takes its first."""
    plain = finished()
    sides = compare_sides(caller=by_session(user), told=[plain.pk, swept.pk])
    assert [one.side.variant.name for one in sides] == ["blink", "blink rate_per_s=50"]


def test_a_queued_run_shows_what_was_asked(
    user: Any, make_run: Callable[..., Any], finished: Callable[..., Any]
) -> None:
    waiting = make_run(overrides=["systems.blink.max_batch=3"])
    found = run_diff(caller=by_session(user), a=finished().pk, b=waiting.pk)
    assert "system.max_batch" in {row.path for row in found.settings}
    assert found.answer == "B has no figures yet; what was asked can be compared."
    assert found.complete


def test_a_run_whose_folder_is_gone_is_no_error(
    user: Any, make_run: Callable[..., Any], finished: Callable[..., Any]
) -> None:
    gone = make_run(state="finished", outcome="passed")
    found = run_diff(caller=by_session(user), a=finished().pk, b=gone.pk)
    assert "no figures yet" in found.answer


def test_a_log_that_cannot_be_read_is_said_and_the_summary_still_serves(
    user: Any, finished: Callable[..., Any], runs_folder: Path
) -> None:
    a, b = finished(), finished("20261130-110001-0a0a02", digested=False)
    (runs_folder / b.pk / "events" / "gpu0.jsonl").write_bytes(b'{"no": "record"}\n')
    found = run_diff(caller=by_session(user), a=a.pk, b=b.pk, wait_s=60)
    assert any("event logs of B cannot be read" in words and "gpu0" in words for words in found.cautions)
    row = next(row for row in found.figures if row.metric == "ttft_ms.mean")
    assert row.cells[0].value == row.cells[1].value


def test_a_digest_is_made_once_and_again_when_the_run_is_concluded_anew(
    user: Any, finished: Callable[..., Any], digests: Path, runs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(digested=False)
    assert kept.digest_get(run_id=run.pk) is None
    assert kept.digest_get(run_id=run.pk, wait_s=60) is not None
    started: list[str] = []
    monkeypatch.setattr(kept, "_have_made", started.append)
    assert kept.digest_get(run_id=run.pk) is not None
    assert started == []
    summary = runs_folder / run.pk / "summary.json"
    summary.write_bytes(summary.read_bytes() + b"\n")
    assert kept.digest_get(run_id=run.pk) is None
    assert started == [run.pk]


def test_without_a_digest_the_answer_is_there_at_once_and_says_that_it_is_not_whole(
    user: Any, finished: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = finished(digested=False), finished("20261130-110001-0a0a02", digested=False)
    monkeypatch.setattr(kept, "_have_made", lambda _run_id: None)
    found = run_diff(caller=by_session(user), a=a.pk, b=b.pk, wait_s=0)
    assert not found.complete
    assert found.figures


def test_a_place_that_cannot_be_written_is_said(user: Any, finished: Callable[..., Any], digests: Path) -> None:
    a, b = finished(), finished("20261130-110001-0a0a02", digested=False)
    (digests / b.pk).write_text("in the way")
    found = run_diff(caller=by_session(user), a=a.pk, b=b.pk, wait_s=0)
    assert any("logs of B" in words and "cannot be kept: File exists" in words for words in found.cautions)


def test_the_longest_unused_digests_make_room(digests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", 2)
    for number in range(4):
        (digests / str(number)).mkdir(parents=True)
        os.utime(digests / str(number), (number, number))
    kept._make_room(digests)
    assert sorted(path.name for path in digests.iterdir()) == ["2", "3"]


def test_one_repeat_is_never_called_a_spread(user: Any, swept: Any) -> None:
    found = run_diff(caller=by_session(user), a=f"{swept.pk}:blink", b=f"{swept.pk}:other")
    grounds = {row.changes[1].ground for row in found.figures if row.changes[1] is not None}
    assert grounds <= {Ground.SINGLE, Ground.NONE}
