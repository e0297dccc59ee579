#!/usr/bin/python3
"""runnerd: the one privileged daemon. Starts, cancels and reaps emulations for the console, which has no privilege.

Standard library only, no shell, no pickle, no path or code from the other side: it takes run ids and the text of a
spec, checks size, ids, types and who asks (SO_PEERCRED), and leaves the spec's meaning to the child that it starts,
which validates before it touches anything (console.md §7 and its head note). One JSON line in, one out, per connection:

    {"op": "start", "run": ID, "spec": TOML, "overrides": ["k=v", …]}   {"ok": true} or {"error": "busy", "exists", …}
    {"op": "cancel", "run": ID}                                         {"ok": true} or {"error": "not running"}
    {"op": "status"[, "run": ID]}                       {"running": [ID, …], "elsewhere": BOOL[, "record": {…}]}
    {"op": "clean"}, {"op": "doctor"}                                   what `python -m topologies` says

One run at a time, and none is begun beside an emulation of a command or of another console. A run that was started
once is never started again under its id. When a run has ended, however it ended, what it left is reaped and
control/outcome.json says how it was, also for a daemon that was killed meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import grp
import json
import os
import pwd
import signal
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from topologies.runnerd_benches import Others, lives, living_benches, start_time
from topologies.runnerd_books import Books, say
from topologies.runnerd_questions import LINE_LIMIT, Refused, only, override_texts, run_id, spec_text

SOURCE = Path(__file__).absolute().parents[1]
CANCEL_PATIENCE_S = 20.0
REAP_PATIENCE_S = 60.0
QUESTION_PATIENCE_S = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

Answer = dict[str, Any]


class Run:
    """A run under way."""

    def __init__(self, run: str, process: asyncio.subprocess.Process, started: int | None) -> None:
        self.run = run
        self.process = process
        self.started = started
        self.cancelled = False
        self.ended = asyncio.Event()


class Runnerd:
    """The daemon's state: at most one run."""

    def __init__(self, state: Path, runs: Path, python: str, group: int, allowed: frozenset[int]) -> None:
        self.state = state
        self.runs = runs
        self.socket = state / "run" / "runnerd.sock"
        self._books = Books(state / "run" / "runnerd", runs)
        self._python = python
        self._group = group
        self._allowed = allowed
        self._current: Run | None = None
        self._others = Others()
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[[dict[str, Any]], Awaitable[Answer]]] = {
            "start": self._start, "cancel": self._cancel, "status": self._status,
            "clean": self._clean, "doctor": self._doctor,
        }  # fmt: skip

    async def serve(self) -> None:
        """Until SIGTERM or SIGINT; then the run under way is cancelled and reaped."""
        self._books.make_folders(self._group)
        self.socket.unlink(missing_ok=True)  # a killed daemon's: nobody answers there
        await self._sweep()
        before = os.umask(0o177)  # nobody may connect until owner and mode are set
        server = await asyncio.start_unix_server(self._connected, path=str(self.socket), limit=LINE_LIMIT)
        os.umask(before)
        os.chown(self.socket, 0, self._group)
        self.socket.chmod(0o660)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with server:
            await stop.wait()
        self.socket.unlink(missing_ok=True)
        if self._current is not None:
            self._ask_to_end(self._current)
            await self._current.ended.wait()

    # --- questions ---

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer)
        except Refused as refused:
            answer = {"error": refused.code, **({"detail": refused.detail} if refused.detail else {})}
        except Exception as fault:  # noqa: BLE001  # one bad question must not end the daemon
            say(f"{type(fault).__name__}: {fault}")
            answer = {"error": "failed", "detail": type(fault).__name__}
        with contextlib.suppress(OSError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        peer: socket.socket = writer.get_extra_info("socket")
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            line = await asyncio.wait_for(reader.readline(), QUESTION_PATIENCE_S)
        except ValueError:
            raise Refused("too long", f"a question has at most {LINE_LIMIT} bytes") from None
        except TimeoutError:
            raise Refused("too slow", "no whole line came") from None
        if uid not in self._allowed:  # after reading, or the answer would be lost to a reset
            raise Refused("forbidden", f"user {uid} may not")
        try:
            question = json.loads(line)
        except ValueError:
            raise Refused("bad question", "one line of JSON is expected") from None
        if not isinstance(question, dict):
            raise Refused("bad question", "a JSON object is expected")
        operation = question.pop("op", None)
        if not isinstance(operation, str) or operation not in self._operations:
            raise Refused("bad op", f"one of {', '.join(self._operations)} is expected")
        return await self._operations[operation](question)

    async def _start(self, question: dict[str, Any]) -> Answer:
        only(question, {"run", "spec", "overrides"})
        run = run_id(question)
        spec = spec_text(question)
        overrides = override_texts(question.get("overrides", []))
        async with self._starting:
            return await self._start_checked(run, spec, overrides)

    async def _start_checked(self, run: str, spec: str, overrides: list[str]) -> Answer:
        if self._books.know(run):
            raise Refused("exists", f"run {run} was started before")
        if self._current is not None:
            raise Refused("busy", f"run {self._current.run} is under way")
        if self._others.are_live():
            raise Refused("taken", "a command or another console emulates on this machine")
        self._books.record(run, state="running", cancelled=False)
        words = [
            self._python, "-m", "testbed.command", "run", "-", "--run-id", run, "--on", "mininet",
            "--out", str(self.runs), *(f"--set={text}" for text in overrides),
        ]  # fmt: skip
        with self._books.log_file(run).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, cwd=SOURCE, env=self._environment(),
                preexec_fn=_in_session_of_its_own,
            )  # fmt: skip
        self._current = Run(run, process, start_time(process.pid))
        self._books.record(run, state="running", cancelled=False, pid=process.pid, start=self._current.started)
        self._go(self._follow(self._current, spec.encode()))
        return {"ok": True, "run": run, "pid": process.pid}

    async def _cancel(self, question: dict[str, Any]) -> Answer:
        only(question, {"run"})
        run = run_id(question)
        if self._current is None or self._current.run != run:
            raise Refused("not running", f"run {run} is not under way")
        if not self._current.cancelled:  # ten cancels are one (fault E11)
            current = self._current
            self._books.record(run, state="running", cancelled=True, pid=current.process.pid, start=current.started)
            self._ask_to_end(current)
        return {"ok": True}

    async def _status(self, question: dict[str, Any]) -> Answer:
        only(question, {"run"})
        answer: Answer = {
            "ok": True,
            "running": [] if self._current is None else [self._current.run],
            "elsewhere": self._current is None and self._others.are_live(),
        }
        if "run" in question:
            answer["record"] = self._books.record_of(run_id(question))
        return answer

    async def _clean(self, question: dict[str, Any]) -> Answer:
        only(question, set())
        code, text = await self._topologies("clean")
        return {"ok": code == 0, "text": text}

    async def _doctor(self, question: dict[str, Any]) -> Answer:
        only(question, set())
        _, text = await self._topologies("doctor", "--json")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise Refused("failed", "the probes gave no answer")
        return {"ok": True, **answer}

    # --- one run's life ---

    async def _follow(self, run: Run, spec: bytes) -> None:
        """Feeds the spec, waits for the end, reaps, and leaves word."""
        stdin = run.process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.write(spec)
            await stdin.drain()
        stdin.close()
        code = await run.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)  # whatever of its session outlived it
        cleaned = await self._reap(run.run)
        self._books.finished(run.run, code, cancelled=run.cancelled, cleaned=cleaned)
        self._current = None
        run.ended.set()

    def _ask_to_end(self, run: Run) -> None:
        run.cancelled = True
        with contextlib.suppress(ProcessLookupError):
            run.process.send_signal(signal.SIGTERM)
        self._go(self._insist(run))

    async def _insist(self, run: Run) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.process.wait(), CANCEL_PATIENCE_S)
        if run.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, signal.SIGKILL)

    async def _reap(self, run: str) -> bool:
        """Waits for the run's benches to finish tearing down, ends those that do not, and removes what is left."""
        await _wait_while(lambda: bool(self._owners(run)))
        for pid in self._owners(run):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code, text = await self._topologies("clean")
        if code != 0:
            say(f"{run}: {text}")
        return code == 0

    def _owners(self, run: str) -> list[int]:
        """Living benches whose run folder belongs to `run`."""
        return [bench.pid for bench in living_benches() if bench.is_of(self.runs / run)]

    async def _sweep(self) -> None:
        """What a killed daemon left: its child has been told to end by the kernel (PDEATHSIG); the run is lost."""
        for run, record in self._books.under_way():
            await _wait_while(partial(lives, record))
            if lives(record):
                os.killpg(int(record["pid"]), signal.SIGKILL)
            cleaned = await self._reap(run)
            self._books.lost(run, cancelled=bool(record.get("cancelled")), cleaned=cleaned)
        code, text = await self._topologies("clean")
        say(f"clean {'' if code == 0 else 'failed '}at start: {text.strip()}")

    # --- programs ---

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/nonexistent",
            "PYTHONUNBUFFERED": "1",
            "LOOPLANE_STATE": str(self.state),
            "LOOPLANE_ASKED_BY": "console",  # what it may touch of this host: topologies.allowed_hardware
        }

    async def _topologies(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            self._python, "-m", "topologies", *words, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=SOURCE, env=self._environment(),
            preexec_fn=_in_session_of_its_own,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(), REAP_PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            return 4, f"topologies {words[0]} did not end within {REAP_PATIENCE_S:g} s"
        text = out.decode(errors="replace")
        return process.returncode or 0, text if process.returncode == 0 or text else err.decode(errors="replace")

    def _go(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _wait_while(condition: Callable[[], bool], patience_s: float = CANCEL_PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while condition() and time.monotonic() < end:  # noqa: ASYNC110  # the end of a process that is not our child
        await asyncio.sleep(0.1)


def _in_session_of_its_own() -> None:
    os.setsid()
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """Runs the daemon until SIGTERM."""
    parser = argparse.ArgumentParser(description="Looplane's privileged runner, on a unix socket.")
    parser.add_argument("--state", type=Path, required=True, help="the state folder; gets run/runnerd.sock")
    parser.add_argument("--runs", type=Path, help="where run folders are made; default: runs of the state folder")
    parser.add_argument("--python", required=True, help="the interpreter of Looplane's environment, for the runs")
    parser.add_argument("--user", default="looplane", help="the console's user, who may ask besides root")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("runnerd: needs root", file=sys.stderr)
        return 3
    try:
        user = pwd.getpwnam(options.user)
        group = grp.getgrgid(user.pw_gid).gr_gid
    except KeyError:
        print(f"runnerd: there is no user {options.user!r}", file=sys.stderr)
        return 3
    state = options.state.absolute()
    runs = state / "runs" if options.runs is None else options.runs.absolute()
    daemon = Runnerd(state, runs, options.python, group, frozenset({0, user.pw_uid}))
    asyncio.run(daemon.serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
