"""Packed timelines as pages fetch them: who gets one, while it is made, parts of it, and one request's events."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from testbed.events.ordering import merge
from webui.benches.identity import bench_here
from webui.runs import packs, sweeper
from webui.runs.models import Run
from webui.runs.packing import MAGIC, packed
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    for maker in packs._makers:
        maker.wait(20)
    shutil.rmtree(Path(settings.DATABASE_FOLDER) / "packs", ignore_errors=True)


@pytest.fixture
def finished(
    make_run: Callable[..., Run], put_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[Run, Path]:
    """A finished run that is long enough for a pack."""
    monkeypatch.setattr(packs, "PACKED_FROM", 1000)
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    return run, put_run(run.pk)


def ready(client: Client, address: str) -> Any:
    """The answer once it is no more 202."""
    for _ in range(300):
        answer = client.get(address)
        if answer.status_code != 202:
            return answer
        assert 0 <= answer.json()["share"] <= 1
        time.sleep(0.1)
    raise AssertionError("the pack was never made")


def test_a_pack_is_made_when_first_asked_for_and_sent_whole_or_in_part(
    logged_in: Client, finished: tuple[Run, Path]
) -> None:
    run, folder = finished
    answer = ready(logged_in, f"/runs/{run.pk}/pack")
    assert answer.status_code == 200
    data = answer.content
    assert data.startswith(MAGIC)
    assert data == packed(folder / "events")
    again = logged_in.get(f"/runs/{run.pk}/pack", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    part = logged_in.get(f"/runs/{run.pk}/pack", headers={"Range": "bytes=4-99"})
    assert (part.status_code, part.content) == (206, data[4:100])
    assert part.headers["Content-Range"] == f"bytes 4-99/{len(data)}"
    assert logged_in.get(f"/runs/{run.pk}/pack", headers={"Range": f"bytes={len(data)}-"}).status_code == 416
    (made,) = packs.packs_folder(run.pk).glob("*.pack")
    assert [path for path in made.parent.iterdir() if path.suffix in (".part", ".progress")] == []


def test_a_long_run_is_packed_ahead_while_the_bench_is_idle(
    finished: tuple[Run, Path], make_run: Callable[..., Run], make_bench: Callable[..., Any]
) -> None:
    run, _ = finished
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now())
    busy = make_run(state=State.RUNNING, bench=make_bench(bench_here()))
    assert sweeper.pack() == ""
    Run.objects.filter(pk=busy.pk).update(state=State.FINISHED, outcome=Outcome.PASSED)
    assert sweeper.pack() == run.pk
    assert sweeper.pack() == ""  # under way, and not begun twice
    path = packs.pack_path(run.pk, "")
    assert path is not None
    packs._makers[0].wait(30)
    assert path.exists()
    assert sweeper.pack() == ""


def test_one_that_was_lost_is_made_again_and_one_of_another_log_is_not_used(
    logged_in: Client, finished: tuple[Run, Path]
) -> None:
    run, folder = finished
    first = ready(logged_in, f"/runs/{run.pk}/pack").content
    packs.packs_forget(run.pk)
    assert ready(logged_in, f"/runs/{run.pk}/pack").content == first
    with (folder / "events" / "late.jsonl").open("w") as log:
        log.write('{"t":9,"node":"late","seq":0,"type":"node.heartbeat"}\n')
    assert ready(logged_in, f"/runs/{run.pk}/pack").content != first


def test_a_short_run_and_one_that_goes_on_are_streamed(
    logged_in: Client, make_run: Callable[..., Run], put_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    put_run(short.pk)
    assert logged_in.get(f"/runs/{short.pk}/pack").status_code == 204
    monkeypatch.setattr(packs, "PACKED_FROM", 1000)
    running = make_run(state=State.RUNNING, lease_owner="w")
    put_run(running.pk)
    assert logged_in.get(f"/runs/{running.pk}/pack").status_code == 204
    empty = make_run(state=State.FINISHED, outcome=Outcome.CANCELLED)
    assert logged_in.get(f"/runs/{empty.pk}/pack").status_code == 204


def test_a_log_that_cannot_be_packed_is_streamed(logged_in: Client, finished: tuple[Run, Path]) -> None:
    run, folder = finished
    with (folder / "events" / "odd.jsonl").open("w") as log:
        log.write('{"t":9,"node":"odd","seq":0,"type":"tokens.read"}\n')
    assert ready(logged_in, f"/runs/{run.pk}/pack").status_code == 204


@pytest.mark.parametrize("what", ["pack", "story?request=1"])
def test_strangers_and_odd_addresses(
    finished: tuple[Run, Path], make_user: Callable[..., object], logged_in: Client, what: str
) -> None:
    run, _ = finished
    assert Client().get(f"/runs/{run.pk}/{what}").status_code == 302
    other = Client()
    other.force_login(make_user("eve"))  # type: ignore[arg-type]
    assert other.get(f"/runs/{run.pk}/{what}").status_code == 404
    joint = "&" if "?" in what else "?"
    for address in (f"/runs/{run.pk}/{what}{joint}trial=../..", f"/runs/{run.pk}/{what}{joint}trial=%00"):
        assert logged_in.get(address).status_code == 404
    assert logged_in.get(f"/runs/nothing/{what}").status_code == 404


def test_a_requests_events_are_the_same_with_and_without_a_pack(logged_in: Client, finished: tuple[Run, Path]) -> None:
    run, folder = finished
    name = next(record.event.name for record in merge(folder / "events") if getattr(record.event, "request", None) == 7)  # type: ignore[attr-defined]
    address = f"/runs/{run.pk}/story?request=7&name={name}"
    searched = logged_in.get(address).content
    assert ready(logged_in, f"/runs/{run.pk}/pack").status_code == 200
    assert logged_in.get(address).content == searched
    events = [json.loads(line) for line in searched.splitlines()]
    expected = [
        (record.t, record.node, record.seq)
        for record in merge(folder / "events")
        if getattr(record.event, "request", None) == 7 or getattr(record.event, "name", None) == name
    ]
    assert [(event["t"], event["node"], event["seq"]) for event in events] == expected
    assert {"request.sent", "slot.claimed", "tokens.detokenised", "token.received"} <= {one["type"] for one in events}


def test_stories_that_are_damaged_are_searched_for_and_made_again(
    logged_in: Client, finished: tuple[Run, Path]
) -> None:
    run, _ = finished
    whole = logged_in.get(f"/runs/{run.pk}/story?request=3").content
    ready(logged_in, f"/runs/{run.pk}/pack")
    (stories,) = packs.packs_folder(run.pk).glob("*.stories")
    stories.write_bytes(b"cut short")
    assert logged_in.get(f"/runs/{run.pk}/story?request=3").content == whole
    assert not stories.exists()
    assert ready(logged_in, f"/runs/{run.pk}/pack").status_code == 200


@pytest.mark.parametrize("query", ["request=x", "request=-1", "request=" + "9" * 40])
def test_a_request_that_is_no_number_is_refused(logged_in: Client, finished: tuple[Run, Path], query: str) -> None:
    assert logged_in.get(f"/runs/{finished[0].pk}/story?{query}").status_code == 400


@pytest.mark.parametrize("query", ["", "request=999", "name=<script>", "name=" + "x" * 5000])
def test_a_request_that_never_was_has_no_events(logged_in: Client, finished: tuple[Run, Path], query: str) -> None:
    answer = logged_in.get(f"/runs/{finished[0].pk}/story?{query}")
    assert (answer.status_code, answer.content) == (200, b"")
