"""The live stream against a real uvicorn: every event once, from any cursor, at the page's pace, for those who may."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from testbed.events.log import EventWriter
from testbed.events.ordering import merge
from testbed.events.run_events import LineLogged
from tests.webui.web_process import web_process
from webui.accounts import services as accounts
from webui.accounts.models import User
from webui.accounts.sessions import SessionStore
from webui.runs import services
from webui.runs.models import Run, Visibility
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_S = 30.0
"""Rights are asked for again every 2 s, and a quiet line says so every 5 s; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def server(state_folder: Path, django_db_setup: None) -> Iterator[str]:
    """The web process on the tests' own database file."""
    with web_process(state_folder) as place:
        yield place


def session_of(user: User) -> str:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    key: str = session.session_key
    return key


Dial = Callable[..., ClientConnection]


@pytest.fixture
def dial(server: str, user: User) -> Iterator[Dial]:
    opened = ExitStack()

    def open_stream(
        run: str, *, cursor: str = "", key: str | None = None, origin: str | None = None, **query: str
    ) -> ClientConnection:
        cookie = f"sessionid={session_of(user) if key is None else key}"
        words = "&".join(f"{name}={value}" for name, value in {"cursor": cursor, **query}.items())
        return opened.enter_context(
            connect(
                f"ws://{server}/ws/runs/{run}?{words}",
                additional_headers={"Cookie": cookie},
                origin=origin or f"http://{server}",  # type: ignore[arg-type]
                max_size=None,
                compression=None,
                proxy=None,
            )
        )

    with opened:
        yield open_stream


class Reader:
    """Takes a stream as the page does."""

    def __init__(self, stream: ClientConnection, *, acknowledge: bool = True) -> None:
        self.stream = stream
        self.acknowledge = acknowledge
        self.cursor = ""
        self.events: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.frames = 0
        self.ended = False

    def step(self, timeout: float = PATIENCE_S) -> None:
        message = self.stream.recv(timeout)
        if isinstance(message, str):
            word = json.loads(message)
            if "run" in word:
                self.runs.append(word["run"])
            self.ended |= "end" in word
            return
        head, *lines = message.splitlines()
        self.cursor = json.loads(head)["cursor"]
        self.events += [json.loads(line) for line in lines]
        self.frames += 1
        if self.acknowledge:
            with suppress(ConnectionClosed):  # the server may have said all it had; the rest is still to be read
                self.stream.send("a")

    def to_the_end(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                self.step()

    def until(self, count: int) -> None:
        while len(self.events) < count:
            self.step()

    def places(self) -> list[tuple[str, int]]:
        return [(event["node"], event["seq"]) for event in self.events]


@pytest.fixture
def finished(make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> tuple[Run, Path]:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    return run, put_run(run.pk)


def test_a_finished_run_is_replayed_whole_and_ends(dial: Dial, finished: tuple[Run, Path]) -> None:
    run, folder = finished
    reader = Reader(dial(run.pk))
    reader.to_the_end()
    assert reader.stream.close_code == 1000
    assert reader.ended
    assert reader.runs[0]["outcome"] == "passed"
    expected = sorted((record.node, record.seq) for record in merge(folder / "events"))
    assert sorted(reader.places()) == expected


def test_cut_anywhere_and_resumed_nothing_is_missing_or_double(dial: Dial, finished: tuple[Run, Path]) -> None:
    run, folder = finished
    events: list[tuple[str, int]] = []
    cursor = ""
    for _ in range(50):
        reader = Reader(dial(run.pk, cursor=cursor))
        with suppress(ConnectionClosed):
            while not reader.frames:
                reader.step()
        events += reader.places()
        reader.stream.close()
        if not reader.frames:
            break
        cursor = reader.cursor
    assert len(events) == len(set(events))
    assert sorted(events) == sorted((record.node, record.seq) for record in merge(folder / "events"))


def test_events_arrive_while_they_are_written_and_the_end_follows_the_last(
    dial: Dial, make_run: Callable[..., Run], put_run: Callable[[str], Path]
) -> None:
    run = make_run(state=State.RUNNING, lease_owner="w")
    folder = put_run(run.pk)
    shutil.rmtree(folder / "events")
    reader = Reader(dial(run.pk))
    reader.step()
    assert reader.runs[0]["state"] == "running"
    late: list[float] = []
    with EventWriter(folder / "events" / "gpu0.jsonl", "gpu0") as writer:
        for number in range(30):
            writer.write(number, LineLogged(str(time.monotonic())))
            writer.flush()
            reader.until(number + 1)
            late.append(time.monotonic() - float(reader.events[-1]["text"]))
    # One of them may meet a machine that stands still for a moment; a stream that gathers is late with all.
    assert median(late) < 2.0, "tokens must be on the page within two seconds of their time"
    with (folder / "events" / "gpu0.jsonl").open("ab") as log:
        log.write(b'{"t":31,"node":"gpu0","se')  # half a line is left for later
        log.flush()
        time.sleep(0.3)
        log.write(b'q":30,"type":"node.heartbeat"}\n')
        log.flush()
        services.run_finish(run_id=run.pk, outcome=Outcome.FAILED, detail="why")
    reader.to_the_end()
    assert [seq for _, seq in reader.places()] == list(range(31))
    assert reader.ended
    assert reader.runs[-1]["outcome"] == "failed"


def test_a_page_that_does_not_answer_is_sent_eight_frames_and_no_more(
    dial: Dial, make_run: Callable[..., Run], put_run: Callable[[str], Path]
) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    folder = put_run(run.pk)
    with EventWriter(folder / "events" / "extra.jsonl", "extra") as writer:
        for number in range(4000):
            writer.write(number, LineLogged("x" * 1000))
    reader = Reader(dial(run.pk), acknowledge=False)
    while reader.frames < 8:
        reader.step()
    with suppress(TimeoutError):
        while True:
            reader.step(timeout=1.5)
    assert reader.frames == 8
    for _ in range(reader.frames):
        reader.stream.send("a")
    reader.acknowledge = True
    reader.to_the_end()
    expected = sorted((record.node, record.seq) for record in merge(folder / "events"))
    assert sorted(reader.places()) == expected


def test_answering_too_much_gains_nothing(dial: Dial, finished: tuple[Run, Path]) -> None:
    stream = dial(finished[0].pk)
    for _ in range(100):
        stream.send("a")
    stream.send("something else")
    reader = Reader(stream)
    reader.to_the_end()
    assert reader.ended


def test_strangers_other_sites_and_unchosen_passwords_are_refused_at_the_door(
    dial: Dial, finished: tuple[Run, Path], make_user: Callable[..., User]
) -> None:
    run, _ = finished
    new, _ = accounts.user_create(name="new")
    for key, origin in (("", None), ("unknown", None), (session_of(new), None), (None, "http://evil.example")):
        with pytest.raises(InvalidStatus) as caught:
            dial(run.pk, key=key, origin=origin)
        assert caught.value.response.status_code == 403


@pytest.mark.parametrize(
    ("run_id", "query", "code"),
    [
        ("20990101-000000-abcdef", {}, 4404),
        ("nope", {}, 4404),
        (None, {"cursor": "zzz"}, 4400),
        (None, {"trial": "../x"}, 4400),
    ],
)
def test_what_is_not_there_is_said_by_a_code(
    dial: Dial, finished: tuple[Run, Path], run_id: str | None, query: dict[str, str], code: int
) -> None:
    stream = dial(run_id or finished[0].pk, **query)
    Reader(stream).to_the_end()
    assert stream.close_code == code


def test_an_account_that_is_closed_loses_its_live_page(
    dial: Dial, make_run: Callable[..., Run], put_run: Callable[[str], Path], user: User
) -> None:
    run = make_run(state=State.RUNNING, lease_owner="w")
    put_run(run.pk)
    reader = Reader(dial(run.pk))
    reader.until(1)
    accounts.user_close(user=user)
    reader.to_the_end()
    assert reader.stream.close_code == 4401


@pytest.mark.parametrize("answers", [True, False])
def test_a_page_whose_reader_loses_the_run_is_closed(
    dial: Dial,
    make_run: Callable[..., Run],
    put_run: Callable[[str], Path],
    make_user: Callable[..., User],
    *,
    answers: bool,
) -> None:
    """Fault F9, also for a page that has a long log before it and answers nothing."""
    run = make_run(state=State.RUNNING, lease_owner="w", visibility=Visibility.EVERYONE)
    folder = put_run(run.pk)
    with EventWriter(folder / "events" / "extra.jsonl", "extra") as writer:
        for number in range(4000):
            writer.write(number, LineLogged("x" * 1000))
    reader = Reader(dial(run.pk, key=session_of(make_user("eve"))), acknowledge=answers)
    reader.until(1)
    Run.objects.filter(pk=run.pk).update(visibility=Visibility.PRIVATE)
    reader.to_the_end()
    assert reader.stream.close_code == 4404


def test_a_quiet_line_says_that_it_stands(dial: Dial, make_run: Callable[..., Run]) -> None:
    stream = dial(make_run(state=State.RUNNING, lease_owner="w").pk)
    assert "run" in json.loads(stream.recv(PATIENCE_S))
    assert stream.recv(PATIENCE_S) == "{}"


def test_many_viewers_see_the_same(dial: Dial, finished: tuple[Run, Path]) -> None:
    run, folder = finished
    readers = [Reader(dial(run.pk)) for _ in range(8)]
    threads = [threading.Thread(target=reader.to_the_end) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    expected = sorted((record.node, record.seq) for record in merge(folder / "events"))
    assert all(sorted(reader.places()) == expected for reader in readers)


def test_one_trial_of_several(dial: Dial, make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    folder = put_run(run.pk)
    (folder / "trials" / "blink-1").mkdir(parents=True)
    (folder / "events").rename(folder / "trials" / "blink-1" / "events")
    whole, trial = Reader(dial(run.pk)), Reader(dial(run.pk, trial="blink-1"))
    whole.to_the_end()
    trial.to_the_end()
    assert whole.events == []
    assert trial.runs[0]["trials"] == ["blink-1"]
    assert len(trial.events) > 1000
