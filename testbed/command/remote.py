"""`looplane remote …`: runs on a console elsewhere, for CI. Exit codes are those of the same run here.

The console's address and a token come from LOOPLANE_URL and LOOPLANE_TOKEN, so that no secret stands on a command line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from testbed.command.console_client import WAIT_S, ConsoleClient
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.telling import say, words_of
from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import read_bytes

PATIENCE_S = 60.0
"""How long a console that does not answer is tried again."""


class Interrupted(Exception):
    """SIGINT or SIGTERM: the CI job is cancelled."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The four things that one does with a console, and what all of them take."""
    parser.epilog = (
        "LOOPLANE_URL is the console's address, LOOPLANE_TOKEN a token of its page API tokens (scope run; read for "
        "status, fetch and list). Exit codes: 0 passed, 1 an expectation failed, 2 bad input or refused, 3 the console "
        "does not answer or takes no more runs, 4 errored, cancelled, lost or fidelity invalid."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = actions.add_parser("run", help="queue an experiment file, and with --wait follow it to its verdict")
    run.add_argument("file", metavar="FILE", help="an experiment (TOML), - for standard input, or a shipped NAME")
    run.add_argument("--on", choices=("sim", "mininet"), default="sim", help="simulated clock (default) or emulation")
    run.add_argument("--set", dest="overrides", action="append", default=[], metavar="K=V", help="override, as for run")
    run.add_argument("--tag", dest="tags", action="append", default=[], metavar="TAG", help="to find it by")
    run.add_argument("--needs", action="append", default=[], metavar="TAG", help="a tag that its bench must have")
    run.add_argument("--key", metavar="KEY", help="idempotency key: the same key again is the same run (a CI job's id)")
    run.add_argument("--wait", action="store_true", help="until it has ended; an interrupt then cancels the run")
    _add_waiting(run)
    status = actions.add_parser("status", help="how a run stands")
    status.add_argument("run", metavar="RUN", help="a run id or its last six digits")
    status.add_argument("--wait", action="store_true", help="until it has ended")
    _add_waiting(status)
    cancel = actions.add_parser("cancel", help="ask a run to end")
    cancel.add_argument("run", metavar="RUN")
    fetch = actions.add_parser("fetch", help="fetch what a finished run has left")
    fetch.add_argument("run", metavar="RUN")
    _add_files(fetch)
    listed = actions.add_parser("list", help="the newest runs")
    listed.add_argument("--limit", type=int, default=20)
    for action in (run, status, cancel, fetch, listed):
        action.add_argument("--url", default=os.environ.get("LOOPLANE_URL", ""), help="default: $LOOPLANE_URL")
        action.add_argument("--json", action="store_true", help="print what the API answered")


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="with --wait; default 3600")
    _add_files(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--junit", type=Path, metavar="PATH", help="write the verdict as JUnit XML")
    parser.add_argument("--trace", type=Path, metavar="PATH", help="write the trace for ui.perfetto.dev")
    parser.add_argument("--artifacts", type=Path, metavar="DIR", help="download every file of the run")


def main(arguments: argparse.Namespace) -> int:
    """Does one action."""
    client = _client(arguments)
    try:
        return _ACTIONS[arguments.action](client, arguments)
    finally:
        client.close()


def _client(arguments: argparse.Namespace) -> ConsoleClient:
    token = os.environ.get("LOOPLANE_TOKEN", "").strip()
    if not arguments.url.startswith(("http://", "https://")):
        raise CommandError(
            f"the console's address: {arguments.url!r}; set LOOPLANE_URL or --url to http(s)://HOST[:PORT]",
            ExitCode.BAD_INPUT,
        )
    if not token:
        raise CommandError("LOOPLANE_TOKEN is not set; make a token on the console's page API tokens",
                           ExitCode.BAD_INPUT)  # fmt: skip
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError("LOOPLANE_TOKEN: a token has no blanks, line ends or other letters than ASCII",
                           ExitCode.BAD_INPUT)  # fmt: skip
    return ConsoleClient(arguments.url, token, patience_s=PATIENCE_S, say=say)


# --- actions ---------------------------------------------------------------------------------------------------------


def _run(client: ConsoleClient, arguments: argparse.Namespace) -> int:
    if not arguments.wait and (arguments.junit or arguments.trace or arguments.artifacts):
        raise CommandError("--junit, --trace and --artifacts need --wait: there is nothing before the end",
                           ExitCode.BAD_INPUT)  # fmt: skip
    body = {**_experiment(arguments.file), "on": arguments.on, "overrides": _overrides(arguments.overrides)}
    body |= {name: told for name in ("tags", "needs") if (told := getattr(arguments, name))}
    run = client.start(body, arguments.key or f"remote-{uuid.uuid4()}")
    say(f"run {run['id']}: {run['state']}, {client.url}/runs/{run['id']}")
    if run["detail"]:
        say(f"run {run['id']}: {run['detail']}")
    if not arguments.wait:
        return _show(run, arguments, ExitCode.PASSED)
    try:
        with _interrupts():
            run = _follow(client, run, arguments.timeout)
    except (Interrupted, TimeoutError) as fault:
        client.cancel(run["id"])
        why = f"not finished after {arguments.timeout:g} s" if isinstance(fault, TimeoutError) else "interrupted"
        raise CommandError(f"run {run['id']}: {why}; asked it to end", ExitCode.ERRORED) from fault
    return _conclude(client, run, arguments)


def _status(client: ConsoleClient, arguments: argparse.Namespace) -> int:
    run = client.run(arguments.run)
    if arguments.wait:
        try:
            with _interrupts():
                run = _follow(client, run, arguments.timeout)
        except (Interrupted, TimeoutError) as fault:
            raise CommandError(f"run {run['id']}: still {run['state']}; it goes on", ExitCode.ERRORED) from fault
    if run["state"] != "finished":
        return _show(run, arguments, ExitCode.PASSED)
    return _conclude(client, run, arguments)


def _cancel(client: ConsoleClient, arguments: argparse.Namespace) -> int:
    client.cancel(arguments.run)
    return _show(client.run(arguments.run), arguments, ExitCode.PASSED)


def _fetch(client: ConsoleClient, arguments: argparse.Namespace) -> int:
    run = client.run(arguments.run)
    if run["state"] != "finished":
        raise CommandError(f"run {run['id']} is {run['state']}; wait with `remote status --wait`", ExitCode.BAD_INPUT)
    _keep(client, run, arguments)
    return _show(run, arguments, ExitCode.PASSED)


def _list(client: ConsoleClient, arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= 100:
        raise CommandError(f"--limit {arguments.limit}: 1 to 100", ExitCode.BAD_INPUT)
    runs = client.runs(limit=arguments.limit)
    if arguments.json:
        print(json.dumps(runs))
        return ExitCode.PASSED
    for run in runs:
        print(f"{run['id']}  {run['outcome'] or run['state']:<10}  {run['fidelity'] or '-':<9}  {run['question']}")
    return ExitCode.PASSED


_ACTIONS: dict[str, Callable[[ConsoleClient, argparse.Namespace], int]] = {
    "run": _run, "status": _status, "cancel": _cancel, "fetch": _fetch, "list": _list,
}  # fmt: skip


# --- parts of actions ------------------------------------------------------------------------------------------------


def _experiment(told: str) -> dict[str, Any]:
    """The text of a file, or the name of an experiment that the console ships."""
    if told == "-":
        return {"spec": sys.stdin.read()}
    if not told.endswith(".toml") and not Path(told).exists():
        return {"experiment": told}
    try:
        return {"spec": read_bytes(told).decode()}
    except SpecError as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    except UnicodeDecodeError as fault:
        raise CommandError(f"{told}: not UTF-8 at byte {fault.start}", ExitCode.BAD_INPUT) from fault


def _overrides(lines: list[str]) -> dict[str, Any]:
    """`K=V` lines as the API takes them: V is TOML, or text without quotes, as for `run`."""
    found: dict[str, Any] = {}
    for line in lines:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise CommandError(f"--set {line}: K=V, as workload.requests=8", ExitCode.BAD_INPUT)
        try:
            read = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            read = value
        if not isinstance(read, bool | int | float | str):
            raise CommandError(f"--set {line}: over the API a value is a text, a number, true or false; "
                               "write lists and tables into the file", ExitCode.BAD_INPUT)  # fmt: skip
        found[key] = read
    return found


def _follow(client: ConsoleClient, run: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Until the run has ended; says what changes. Raises TimeoutError."""
    end = time.monotonic() + timeout_s
    told = (run["state"], run["detail"])
    while run["state"] != "finished":
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        run = client.run(run["id"], wait_s=min(left, WAIT_S))
        if (run["state"], run["detail"]) != told:
            told = (run["state"], run["detail"])
            say(f"run {run['id']}: " + ", ".join(filter(None, told)))
    return run


def _conclude(client: ConsoleClient, run: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Files first: a failed run is the one that somebody will look into."""
    _keep(client, run, arguments)
    return _show(run, arguments, verdict_code(run))


def _keep(client: ConsoleClient, run: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Writes what was asked for; a run that never started has no files, and that is said, not hidden."""
    wanted: list[tuple[Path | None, Callable[[Path], None]]] = [
        (arguments.junit, lambda path: _write(path, client.junit(run["id"]))),
        (arguments.trace, lambda path: _write(path, client.trace(run["id"]))),
        (arguments.artifacts, lambda path: _download(client, run["id"], path)),
    ]
    faults = []
    for path, keep in wanted:
        if path is None:
            continue
        try:
            keep(path)
        except (CommandError, OSError) as fault:
            faults.append(f"{path}: {fault if isinstance(fault, CommandError) else words_of(fault)}")
            say(f"looplane: {faults[-1]}")
    if faults and verdict_code(run) == ExitCode.PASSED:
        raise CommandError(f"run {run['id']} passed, but {len(faults)} of its files could not be kept",
                           ExitCode.ERRORED)  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _download(client: ConsoleClient, run_id: str, folder: Path) -> None:
    for one in client.artifacts(run_id):
        target = (folder / one["name"]).resolve()
        if not target.is_relative_to(folder.resolve()):  # a console that is not ours may call a file anything
            raise CommandError(f"{one['name']!r} leads out of the folder", ExitCode.ERRORED)
        client.download(run_id, one["name"], target)


def verdict_code(run: dict[str, Any]) -> ExitCode:
    """The exit code of a finished run, as `looplane run` would have ended."""
    return {"passed": ExitCode.PASSED, "failed": ExitCode.EXPECTATION_FAILED}.get(run["outcome"], ExitCode.ERRORED)


def _show(run: dict[str, Any], arguments: argparse.Namespace, code: ExitCode) -> int:
    if arguments.json:
        print(json.dumps(run))
        return code
    standing = ", ".join(filter(None, [run["state"], run["outcome"], run["fidelity"]]))
    print(f"run {run['id']}: {standing}" + (f": {run['detail']}" if run["detail"] else ""))
    for row in (run.get("summary") or {}).get("expectations", []):
        place = f" [{row['point']}]" if row.get("point") else ""
        measured = row["measured"] if row.get("measured") is not None else row.get("reason", "")
        print(f"  {'held  ' if row['held'] else 'BROKEN'}  {row['text']}{place}: {measured}")
    return code


@contextmanager
def _interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM become `Interrupted` while a run is followed: CI ends its jobs that way."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
