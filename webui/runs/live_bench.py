"""Measures the live stream as people meet it: a real server, real sockets, a real browser, event lines of the schema.

A writer appends events at a rate to the logs of four nodes, as nodes do. Some viewers read the stream as bare sockets
and check that every event of every node comes once; one is the run page in Chromium, where the time from an event to
the frame in which it is drawn is taken on the same clock. Half-way the server may be killed and started again.

`python -m webui.runs.live_bench` prints JSON; `looplane bench live` and tests/webui/runs/test_live_load.py read it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from testbed.command.places import SOURCE
from testbed.events.client_events import RequestSent, TokenReceived
from testbed.events.log import EventWriter
from testbed.events.run_events import NodeHeartbeat, NodeStopped
from testbed.events.schema import RequestArrived, TokensPublished
from testbed.machine import Event

NODES = ("client0", "dpu0", "gpu0", "host0")
FLUSH_S = 0.02
BEAT_S = 0.1
"""A heartbeat of every node, as the driver writes it (architecture §6)."""
TOKENS = 200
"""Tokens of a request; a request is sent whenever the one before it in its place has had all of its own."""
AT_ONCE = 64
_SEQ = re.compile(rb'"node":"([^"]+)","seq":(\d+)')


class Writer(threading.Thread):
    """Appends events at a steady rate; `t` is the time since `epoch_ns` of the wall clock, undilated."""

    def __init__(self, folder: Path, rate: float, seconds: float) -> None:
        super().__init__(name="writer")
        self._folder = folder
        self._rate = rate
        self._seconds = seconds
        self.epoch_ns = time.time_ns()
        self.written = dict.fromkeys(NODES, 0)

    def run(self) -> None:
        """Until the time is over; then every node says that it has stopped."""
        writers = {node: EventWriter(self._folder / f"{node}.jsonl", node) for node in NODES}
        events, began, number, beat = self._events(), time.monotonic(), 0, 0.0
        while (passed := time.monotonic() - began) < self._seconds:
            due = int(passed * self._rate)
            for _ in range(due - number):
                node, event = next(events)
                self._put(writers[node], event)
            number = due
            if passed >= beat:
                beat = passed + BEAT_S
                for writer in writers.values():
                    self._put(writer, NodeHeartbeat())
            for writer in writers.values():
                writer.flush()
            time.sleep(FLUSH_S)
        for writer in writers.values():
            self._put(writer, NodeStopped(0))
            writer.close()

    def _put(self, writer: EventWriter, event: Event) -> None:
        writer.write(time.time_ns() - self.epoch_ns, event)
        self.written[writer.node] += 1

    @staticmethod
    def _events() -> Any:
        """Requests in `AT_ONCE` places: sent, arrived, then a token published and received again and again."""
        number = 0
        places: list[list[int]] = [[0, TOKENS] for _ in range(AT_ONCE)]
        while True:
            for place in places:
                if place[1] >= TOKENS:
                    number += 1
                    place[:] = [number, 0]
                    yield "client0", RequestSent(f"request-{number:05}", 0, 0, 64, TOKENS)
                    yield "dpu0", RequestArrived(number, f"request-{number:05}", 200, TOKENS)
                place[1] += 1
                yield "gpu0", TokensPublished(place[1], (place[0],), (place[1],))
                yield "client0", TokenReceived(f"request-{place[0]:05}", place[1] - 1, 1)
                yield "host0", TokensPublished(place[1], (), ())


class Viewer(threading.Thread):
    """A page without a picture: counts what comes, answers each frame, comes back from its cursor."""

    def __init__(self, address: str, run_id: str, cookie: str) -> None:
        super().__init__(name="viewer", daemon=True)
        self._where = f"ws://{address}/ws/runs/{run_id}?cursor="
        self._cookie = cookie
        self._origin = f"http://{address}"
        self.next: dict[str, int] = {}
        self.wrong = 0
        """Events that were not the next one of their node: lost or doubled."""
        self.connects = 0
        self.ended = False

    def run(self) -> None:
        """Until the server has said that this was all."""
        cursor, give_up = "", time.monotonic() + 300
        while not self.ended and time.monotonic() < give_up:
            with suppress(OSError, ConnectionClosed, InvalidHandshake, TimeoutError):
                self.connects += 1
                with connect(  # type: ignore[call-overload]
                    self._where + cursor, additional_headers={"Cookie": f"sessionid={self._cookie}"},
                    origin=self._origin, max_size=None, compression=None, proxy=None,
                ) as stream:  # fmt: skip
                    while True:
                        message = stream.recv(30)
                        if isinstance(message, str):
                            self.ended |= '"end"' in message
                            continue
                        head, _, lines = message.partition(b"\n")
                        self._take(lines)
                        cursor = json.loads(head)["cursor"]
                        stream.send("a")
            time.sleep(0.2)

    def _take(self, lines: bytes) -> None:
        for node, seq in _SEQ.findall(lines):
            name, number = node.decode(), int(seq)
            self.wrong += number != self.next.get(name, 0)
            self.next[name] = number + 1


class Server:
    """`webui.serve` on a socket that stays open while it is killed and started again."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._listener.set_inheritable(True)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        fd = self._listener.fileno()
        words = [sys.executable, "-m", "webui.serve", "--fd", str(fd)]
        process = subprocess.Popen(words, cwd=SOURCE, env=self._environment, pass_fds=[fd])
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"http://{self.address}/healthz", timeout=1):
                return process
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the web process does not answer")

    def kill(self) -> None:
        """Without a word; then another one."""
        self.process.kill()
        self.process.wait()
        self.process = self._started()

    def cpu_s(self) -> float:
        """CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Ends it and waits."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)
        self._listener.close()


PROBE = """() => {
  const { model, timeline } = window.looplane, pending = [], found = window.found = { latency: [], frames: [] };
  model.folds.push({ take(event) { if (event.seq % 7 === 0) pending.push(event.t); } });
  model.readers.clear();
  const draw = timeline.draw.bind(timeline);
  timeline.draw = () => {
    draw();
    const now = Date.now() - window.epoch;
    for (const t of pending.splice(0)) found.latency.push(now - t / 1e6);
  };
  let frames = 0, since = performance.now();
  const frame = (now) => {
    frames++;
    if (now - since >= 1000) { found.frames.push((frames * 1000) / (now - since)); frames = 0; since = now; }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""


def browsed(address: str, run_id: str, cookie: str, writer: Writer, found: dict[str, Any]) -> None:
    """The run page in Chromium, until the run has ended: latencies in ms, frames of each second, what it knows."""
    from playwright.sync_api import sync_playwright  # a tool of development: only who measures needs it

    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=flags)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": f"http://{address}"}])
        page = context.new_page()
        page.set_default_timeout(240_000)
        page.goto(f"http://{address}/runs/{run_id}")
        page.wait_for_function("() => window.looplane")
        page.evaluate(f"window.epoch = {writer.epoch_ns / 1e6}")
        page.evaluate(PROBE)
        page.wait_for_function("() => window.looplane.model.events > 100")
        page.evaluate("window.found.latency.length = window.found.frames.length = 0")
        page.wait_for_function("() => window.looplane.timeline.live === false")
        found |= page.evaluate("() => window.found")
        found["events"] = page.evaluate("() => window.looplane.model.events")
        found["gaps"] = page.evaluate("() => [...window.looplane.model.fidelity.counts.gaps.values()]")
        browser.close()


def measured(state: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One measurement."""
    run_id, cookie = _prepared()
    server = Server({**os.environ, "LOOPLANE_STATE": str(state)})
    events = state / "runs" / run_id / "events"
    events.mkdir(parents=True)
    writer = Writer(events, options.rate, options.seconds)
    viewers = [Viewer(server.address, run_id, cookie) for _ in range(options.viewers - options.browser)]
    found: dict[str, Any] = {}
    page = threading.Thread(target=browsed, args=(server.address, run_id, cookie, writer, found))
    try:
        for viewer in viewers:
            viewer.start()
        if options.browser:
            page.start()
            time.sleep(4)  # the page is open before the first event, as when one watches a run from its start
        writer.start()
        shares = _watched(server, writer, options)
        writer.join()
        time.sleep(1)  # the row is finished after the log, as always
        _finished(run_id)
        for viewer in viewers:
            viewer.join(240)
        if options.browser:
            page.join(240)
    finally:
        server.end()
    total = sum(writer.written.values())
    seen = [sum(viewer.next.values()) for viewer in viewers]
    wrong = [viewer.wrong + abs(total - count) for viewer, count in zip(viewers, seen, strict=True)]
    if options.browser:
        wrong.append(abs(total - found.pop("events", 0)) + sum(found.pop("gaps", [])))
    connects = [viewer.connects for viewer in viewers]
    return {"events": total, "wrong": wrong, "connects": connects, "cpu_percent": shares, **found}


def _watched(server: Server, writer: Writer, options: argparse.Namespace) -> list[float]:
    """The server's share of a core in each second; kills it half-way where that is asked for."""
    shares: list[float] = []
    killed = not options.kill
    began = time.monotonic()
    while writer.is_alive():
        before, at = server.cpu_s(), time.monotonic()
        writer.join(1)
        shares.append(100 * (server.cpu_s() - before) / (time.monotonic() - at))
        if not killed and time.monotonic() - began > options.seconds / 2:
            killed = True
            server.kill()
    return shares[1:-1]


def _prepared() -> tuple[str, str]:
    """A run that goes on, and the session of somebody who may look on."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.core.management import call_command
    from django.utils import timezone

    from testbed.experiment.run_folder import new_run_id
    from webui.accounts.models import User
    from webui.accounts.sessions import SessionStore
    from webui.runs.models import Run
    from webui.runs.states import State

    call_command("migrate", verbosity=0)
    user = User.objects.create(username="bench", role="admin")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    run = Run.objects.create(
        id=new_run_id(timezone.now()), question="How live is it?", backend="sim", spec="", owner=user,
        state=State.RUNNING, lease_owner="bench",
    )  # fmt: skip
    return run.pk, str(session.session_key)


def _finished(run_id: str) -> None:
    from webui.runs.models import Run
    from webui.runs.states import Outcome, State

    Run.objects.filter(pk=run_id).update(state=State.FINISHED, outcome=Outcome.PASSED, lease_owner="")


def main() -> None:
    """Measures once and prints."""
    parser = argparse.ArgumentParser(prog="webui.runs.live_bench")
    parser.add_argument("--rate", type=float, default=5000, help="events a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--viewers", type=int, default=10, help="one of them Chromium, with --browser")
    parser.add_argument("--browser", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--kill", action="store_true", help="the server, half-way")
    options = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="looplane-live-"))
    for name in ("db", "runs", "run", "log"):
        (state / name).mkdir()
    os.environ |= {"LOOPLANE_STATE": str(state), "DJANGO_SETTINGS_MODULE": "webui.settings"}
    for name in ("DATABASE_URL", "REDIS_URL", "LOOPLANE_HTTPS"):
        os.environ.pop(name, None)
    import django

    django.setup()
    try:
        print(json.dumps(measured(state, options)))
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
