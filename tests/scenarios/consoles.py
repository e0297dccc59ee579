"""A whole console for accidents: `looplane up` on a state folder of its own, on whichever database and queue.

Runs are started through its REST API, as CI does; rows are read from the database itself, beside the console.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg

from testbed.command.installation import prepare_installation

TOP = Path(__file__).resolve().parents[2]
SMALL = TOP / "fixtures" / "experiments" / "blink" / "small.toml"
LONG = 20_000
"""Requests of a run that is to be met by accidents; it is cancelled or killed long before."""
TOKEN = """
import django
django.setup()
from webui.accounts.models import User
from webui.accounts.services import token_create
user = User.objects.get(username="admin")
user.one_time_password = False
user.save()
print(token_create(user=user, name="accidents")[1])
"""
COOKIES = """
import json, django
django.setup()
from django.test import Client
from webui.accounts.models import User
client = Client()
client.force_login(User.objects.get(username="admin"))
print(json.dumps([[key, morsel.value] for key, morsel in client.cookies.items()]))
"""

T = TypeVar("T")


class Row(NamedTuple):
    """A run as the database has it."""

    state: str
    outcome: str
    detail: str
    attempts: int
    bench: str


class Answer(NamedTuple):
    """What the API said."""

    status: int
    headers: Mapping[str, str]
    body: Any


def until(look: Callable[[], T | None], otherwise: str, patience_s: float = 60.0) -> T:
    """What `look` finds, once it is not None."""
    end = time.monotonic() + patience_s
    while (found := look()) is None:
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
    return found


class Console:
    """`looplane up`, or with `verb` a bench that joins one, in /var/tmp because the service user must get there."""

    def __init__(self, *words: str, verb: str = "up", environment: Mapping[str, str] | None = None) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="looplane-accidents-", dir="/var/tmp"))
        self.state.chmod(0o755)
        self.environment = {"LOOPLANE_STATE": str(self.state), **(environment or {})}
        self.runs = Path(self.environment.get("LOOPLANE_RUNS", self.state / "runs"))
        self._verb, self._words = verb, words
        self.address, self._token = "", ""
        try:
            self.up()
        except BaseException:
            self.close()
            raise

    def command(self, *words: str) -> str:
        """The `looplane` command on this state folder; what it prints. It must succeed."""
        done = subprocess.run([sys.executable, "-m", "testbed.command", *words], cwd=TOP, capture_output=True,
                              text=True, env=os.environ | self.environment, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self) -> None:
        """Starts it, again if it was ended."""
        said = self.command(self._verb, *(["--port", "0"] if self._verb == "up" else []), "--detach", *self._words)
        found = re.search(r"Console\s+(\S+)/\n", said)
        self.address = found[1] if found else ""
        self.place = prepare_installation(self.state, self.runs)

    def close(self) -> None:
        """Ends it; nothing of it is left."""
        try:
            self.command("stop")
        finally:
            shutil.rmtree(self.state, ignore_errors=True)

    # --- its processes ---

    def pid(self, kind: str) -> int:
        """The supervisor, or a child of it by a word of its command."""
        supervisor = int(self.place.pidfile.read_text())
        if kind == "supervisor":
            return supervisor
        return until(lambda: self._child(supervisor, kind), f"no {kind}")

    def kill(self, kind: str) -> int:
        """`kill -9`; the pid of what was killed."""
        victim = self.pid(kind)
        os.kill(victim, signal.SIGKILL)
        return victim

    def successor(self, kind: str, victim: int) -> bool | None:
        """Whether another has taken its place."""
        return self.pid(kind) != victim or None

    def _child(self, supervisor: int, word: str) -> int | None:
        for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        return None

    # --- its API ---

    @property
    def token(self) -> str:
        """The first user's."""
        if not self._token:
            self._token = self.program(TOKEN).strip()
        return self._token

    def cookies(self) -> list[dict[str, str]]:
        """Of a session of the first user's, as a browser takes them."""
        said = json.loads(self.program(COOKIES))
        return [{"name": name, "value": value, "url": self.address} for name, value in said]

    def program(self, text: str, *words: str) -> str:
        """What a program prints that runs as the console's user, on its staged source."""
        done = subprocess.run([sys.executable, "-c", text, *words], cwd=self.place.app, capture_output=True, text=True,
                              env=self.place.environment(os.environ | self.environment), timeout=60, check=False,
                              user=self.place.uid, group=self.place.gid, extra_groups=[])  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, path: str, body: Any = None, *, method: str | None = None, patience_s: float = 20.0) -> Answer:
        """One question; any status is an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/api/v1{path}", data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=patience_s) as answer:
                return Answer(answer.status, answer.headers, json.loads(answer.read() or b"null"))
        except urllib.error.HTTPError as refused:
            text = refused.read()
            return Answer(refused.code, refused.headers, json.loads(text) if text[:1] in b"{[" else text.decode())

    def start(self, on: str = "mininet", **more: Any) -> str:
        """A run's id. Emulations are long, and of namespaces, which are faster than containers."""
        changes = {"workload.requests": LONG, "nodes": "namespace"} if on == "mininet" else {}
        answer = self.ask("/runs", {"spec": SMALL.read_text(), "on": on, "overrides": changes, **more})
        assert answer.status == 202, answer
        return str(answer.body["id"])

    def start_and_see_tokens(self) -> str:
        """An emulation, once its tokens flow and its row says so."""
        run = self.start()
        log = self.events_of(run)
        until(lambda: (log.is_file() and b"token.received" in log.read_bytes()) or None, f"{run}: {self.row(run)}")
        until(lambda: self.row(run).state == "running" or None, f"{run}: {self.row(run)}")
        return run

    # --- what it knows of runs ---

    def row(self, run: str) -> Row:
        """From the database itself."""
        query = "select state, outcome, detail, attempts, coalesce(bench_id, '') from runs_run where id = "
        if url := self.environment.get("DATABASE_URL"):
            with psycopg.connect(url, connect_timeout=5) as server:
                found = server.execute(f"{query}%s", (run,)).fetchone()
        else:
            with sqlite3.connect(f"file:{self.state}/db/console.sqlite3?mode=ro", uri=True) as file:
                found = file.execute(f"{query}?", (run,)).fetchone()
        assert found is not None, f"no run {run}"
        return Row(*found)

    def events_of(self, run: str) -> Path:
        """The log in which tokens arrive."""
        return self.runs / run / "events" / "client0.jsonl"

    def bytes_of(self, run: str) -> int:
        """How much of it there is."""
        return self.events_of(run).stat().st_size

    def outcome_in_folder(self, run: str) -> str:
        """What the run folder says; empty while it says nothing."""
        try:
            said = json.loads((self.runs / run / "control" / "outcome.json").read_bytes())
        except OSError:
            return ""
        return str(said.get("outcome") or "")

    def ended(self, run: str, patience_s: float = 60.0) -> Row:
        """Its row, once it is finished."""
        until(lambda: self.row(run).state == "finished" or None, f"{run}: {self.row(run)}", patience_s)
        return self.row(run)
