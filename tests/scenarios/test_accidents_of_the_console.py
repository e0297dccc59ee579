"""`kill -9` of each of the console's processes under a live emulation: the run goes on, or is marked with a reason.

The web server and the worker are nothing to the run: it goes on, followed by the next worker. runnerd and the
supervisor take it with them; then it is marked so, and the host is as before. Known fault E14.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from accidents import SMALL, TOP, leftovers, strangers
from test_accidents import SEED

from testbed.command.installation import Installation, prepare_installation
from topologies.registry import RunRegistry

import host_state  # isort: skip  # accidents has put its folder on the path

pytestmark = [pytest.mark.root]
SOAK_KILLS = 20
KILLS_A_RUN = 4
"""Of each kind; a run of the small experiment has a limit of time."""
REQUESTS = 20_000
LATEST_S = 1.0
MARKED_WITHIN_S = 40.0
"""Most of it is the supervisor's wait before it starts again what dies again and again."""
SAID = {
    "runnerd": ("lost", "the runner ended while this run was under way"),
    "supervisor": ("cancelled", "the console was stopped while it ran"),  # the kernel asks its children to end
}
START = """
import sys, django
django.setup()
from webui.accounts.models import User
from webui.runs import services
from webui.runs.models import Backend
more = ["nodes=\\"namespace\\"", "workload.requests=" + sys.argv[2]]
run, _ = services.run_start(
    owner=User.objects.get(), spec=open(sys.argv[1]).read(), backend=Backend.MININET, overrides=more)
print(run.pk)
"""


class Console:
    """`looplane up` on a state folder of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.place: Installation
        self.up()

    def command(self, *words: str) -> None:
        environment = {**os.environ, "LOOPLANE_STATE": str(self.state)}
        done = subprocess.run([sys.executable, "-m", "testbed.command", *words], cwd=TOP, env=environment,
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def up(self) -> None:
        self.command("up", "--port", "0", "--detach")
        self.place = prepare_installation(self.state)

    def pid(self, kind: str) -> int:
        """The supervisor, or a child of it by a word of its command."""
        supervisor = int(self.place.pidfile.read_text())
        if kind == "supervisor":
            return supervisor
        return until(lambda: self._child(supervisor, kind), f"no {kind}")

    def _child(self, supervisor: int, word: str) -> int | None:
        for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        return None

    def successor(self, kind: str, victim: int) -> bool | None:
        return self.pid(kind) != victim or None

    def start_run(self) -> str:
        """Starts an emulation as the console's user; its id, once tokens flow."""
        run = self.place.run_as_user([sys.executable, "-c", START, str(self.place.app / SMALL.relative_to(TOP)),
                                      str(REQUESTS)]).strip()  # fmt: skip
        log = self.state / "runs" / run / "events" / "client0.jsonl"
        until(lambda: (log.is_file() and b"token.received" in log.read_bytes()) or None, f"{run} does not start")
        until(lambda: self.row(run)[0] == "running" or None, f"{run} is not followed")
        return run

    def row(self, run: str) -> tuple[str, str, str, int]:
        """State, outcome, detail and attempts, as pages show them."""
        with sqlite3.connect(f"file:{self.state}/db/console.sqlite3?mode=ro", uri=True) as database:
            query = "select state, coalesce(outcome, ''), detail, attempts from runs_run where id = ?"
            found: tuple[str, str, str, int] = database.execute(query, (run,)).fetchone()
        return found

    def followed_anew(self, run: str, attempts: int) -> bool | None:
        return self.row(run)[3] > attempts or None

    def goes_on(self, run: str, there: int) -> bool | None:
        return self.bytes_of(run) > there or None

    def is_finished(self, run: str) -> bool | None:
        return self.row(run)[0] == "finished" or None

    def bytes_of(self, run: str) -> int:
        return (self.state / "runs" / run / "events" / "client0.jsonl").stat().st_size


def until(look, otherwise: str, patience_s: float = 60.0):  # type: ignore[no-untyped-def]  # whatever it finds
    end = time.monotonic() + patience_s
    while (found := look()) is None:
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """In /var/tmp, because the service user must get there."""
    state = Path(tempfile.mkdtemp(prefix="looplane-accidents-", dir="/var/tmp"))
    state.chmod(0o755)
    made = Console(state)
    yield made
    made.command("stop")
    shutil.rmtree(state, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_kill_9_of_what_only_watches(console: Console, soak: bool, soak_note: Callable[[str], None]) -> None:
    """The bench is the same process before and after, and events go on; the row is followed by the next worker."""
    moments = random.Random(f"{SEED} watchers")
    runs, kills = (SOAK_KILLS // KILLS_A_RUN, KILLS_A_RUN) if soak else (1, 1)
    took = []
    for _ in range(runs):
        before, run = host_state.snapshot(), console.start_run()
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
        until(partial(console.is_finished, run), "its end is not seen", MARKED_WITHIN_S)
        assert console.row(run)[1:3] == SAID["runnerd"]
        assert leftovers(before, record.label) == []
    each = f"{runs * kills} kill -9 each of web server and worker"
    soak_note(f"{each}: the run went on, slowest successor {max(took):.1f} s; then runnerd, {runs} times; leftovers 0")


def kill_a_watcher(console: Console, run: str, kind: str) -> float:
    """Seconds until a successor does its work; the run has gone on."""
    attempts, there, victim = console.row(run)[3], console.bytes_of(run), console.pid(kind)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    if kind == "webui.celery":
        until(partial(console.followed_anew, run, attempts), "nobody has taken the run up", MARKED_WITHIN_S)
    until(partial(console.successor, kind, victim), f"no other {kind}", MARKED_WITHIN_S)
    seconds = time.monotonic() - killed
    until(partial(console.goes_on, run, there), "no more events")
    assert console.row(run)[0] == "running"
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
            before, run = host_state.snapshot(), console.start_run()
            moment = moments.uniform(0, LATEST_S)
            print(f"{kind}: seed {SEED}, {moment:.3f} s after its first token")
            time.sleep(moment)
            victim, killed = console.pid(kind), time.monotonic()
            os.kill(victim, signal.SIGKILL)
            if kind == "supervisor":
                assert leftovers(before, run.rpartition("-")[2]) == []  # though nobody has been started again
                console.up()
            until(partial(console.is_finished, run), "never marked", MARKED_WITHIN_S)
            took.append(time.monotonic() - killed)
            assert console.row(run)[1:3] == SAID[kind]
            assert console.bytes_of(run) > 0
            assert leftovers(before, run.rpartition("-")[2]) == []
            beside.check()
    marked = f"its run marked {SAID[kind][0]} within {max(took):.1f} s at most"
    soak_note(f"{len(took)} kill -9 of {kind}: {marked}, leftovers 0")
