"""`kill -9` of each of the console's processes under a live emulation: the run goes on, or is marked with a reason.

The web server and the worker are nothing to the run: it goes on, followed by the next worker. runnerd and the
supervisor take it with them; then it is marked so at once, and the host is as before. Known fault E14.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from accidents import leftovers, strangers
from consoles import Console, until
from test_accidents import SEED

from topologies.registry import RunRegistry

import host_state  # isort: skip  # accidents has put its folder on the path

pytestmark = [pytest.mark.root]
SOAK_KILLS = 20
KILLS_A_RUN = 4
"""Of each kind; a run of the small experiment has a limit of time."""
LATEST_S = 1.0
MARKED_WITHIN_S = 40.0
"""Most of it is the supervisor's wait before it starts again what dies again and again."""
SAID = {
    "runnerd": ("lost", "the runner ended while this run was under way"),
    "supervisor": ("cancelled", "the console was stopped while it ran"),  # the kernel asks its children to end
}


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """On the embedded database and queue."""
    made = Console()
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_kill_9_of_what_only_watches(console: Console, soak: bool, soak_note: Callable[[str], None]) -> None:
    """The bench is the same process before and after, and events go on; the row is followed by the next worker."""
    moments = random.Random(f"{SEED} watchers")
    runs, kills = (SOAK_KILLS // KILLS_A_RUN, KILLS_A_RUN) if soak else (1, 1)
    took = []
    for _ in range(runs):
        before, run = host_state.snapshot(), console.start_and_see_tokens()
        record = RunRegistry(run.rpartition("-")[2]).record()
        assert record is not None
        for kind in ("webui.serve", "webui.celery") * kills:
            moment = moments.uniform(0, LATEST_S)
            print(f"{kind}: seed {SEED}, after {moment:.3f} s")
            time.sleep(moment)
            took.append(kill_a_watcher(console, run, kind))
            assert RunRegistry(record.label).record() == record
            assert record.owner.alive()
        os.kill(console.pid("runnerd"), signal.SIGKILL)  # the whole run hangs on it
        until(partial(_is_finished, console, run), "its end is not seen", MARKED_WITHIN_S)
        assert console.row(run)[1:3] == SAID["runnerd"]
        assert leftovers(before, record.label) == []
    each = f"{runs * kills} kill -9 each of web server and worker"
    soak_note(f"{each}: the run went on, slowest successor {max(took):.1f} s; then runnerd, {runs} times; leftovers 0")


def _followed_anew(console: Console, run: str, attempts: int) -> bool | None:
    return console.row(run).attempts > attempts or None


def _goes_on(console: Console, run: str, there: int) -> bool | None:
    return console.bytes_of(run) > there or None


def _is_finished(console: Console, run: str) -> bool | None:
    return console.row(run).state == "finished" or None


def kill_a_watcher(console: Console, run: str, kind: str) -> float:
    """Seconds until a successor does its work; the run has gone on."""
    attempts, there, victim = console.row(run).attempts, console.bytes_of(run), console.pid(kind)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    if kind == "webui.celery":
        until(partial(_followed_anew, console, run, attempts), "nobody has taken the run up", MARKED_WITHIN_S)
    until(partial(console.successor, kind, victim), f"no other {kind}", MARKED_WITHIN_S)
    seconds = time.monotonic() - killed
    until(partial(_goes_on, console, run, there), "no more events")
    assert console.row(run).state == "running"
    return seconds


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["runnerd", "supervisor"])
def test_kill_9_of_what_a_run_hangs_on(
    console: Console, kind: str, soak: bool, soak_note: Callable[[str], None]
) -> None:
    if kind == "runnerd" and not soak:
        pytest.skip("it is killed under the run of the test before; --soak kills it often")
    moments = random.Random(f"{SEED} {kind}")
    took = []
    with strangers() as beside:
        for _ in range(SOAK_KILLS if soak else 1):
            before, run = host_state.snapshot(), console.start_and_see_tokens()
            moment = moments.uniform(0, LATEST_S)
            print(f"{kind}: seed {SEED}, {moment:.3f} s after its first token")
            time.sleep(moment)
            victim, killed = console.pid(kind), time.monotonic()
            os.kill(victim, signal.SIGKILL)
            until(partial(_is_finished, console, run), "never marked", MARKED_WITHIN_S)
            took.append(time.monotonic() - killed)
            if kind == "supervisor":  # its last worker has written that down: nobody has been started again
                assert leftovers(before, run.rpartition("-")[2]) == []
                console.up()
            assert console.row(run)[1:3] == SAID[kind]
            assert console.bytes_of(run) > 0
            assert leftovers(before, run.rpartition("-")[2]) == []
            beside.check()
    marked = f"its run marked {SAID[kind][0]} within {max(took):.1f} s at most"
    soak_note(f"{len(took)} kill -9 of {kind}: {marked}, leftovers 0")
