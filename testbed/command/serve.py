"""`looplane serve FILE`: the experiment's system behind a base URL for OpenAI-compatible clients, until it is stopped.

The first trial is served. On Mininet a relay on loopback leads into the run's front network; without root the same
machines run in one process, paced by the wall clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

import msgspec

from testbed.command import run
from testbed.command.calibrated import profile_for_a_run
from testbed.command.conduct import LOCK, Ending, Signals, ending_of, finish
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.locks import held
from testbed.command.places import is_root, runs_folder
from testbed.command.telling import say
from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.launch import Prepared, WallEnd, launch_wall, prepare, serve_in_process
from testbed.experiment.run_folder import RunFolder, RunFolderError
from testbed.experiment.spec import Spec
from testbed.network.wire_profile import MODELLED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As `run`; --json prints the address as an object."""
    parser.add_argument("file", metavar="FILE", help="an experiment (TOML), or - for standard input")
    run.add_run_arguments(parser)


def _check_that_it_serves(file: str, spec: Spec) -> None:
    """Raises CommandError unless outside clients can ask the first system, which is the one that is served."""
    name, system = next(iter(spec.systems.items()))
    row = SYSTEMS[system.kind]
    if row.clients != "text" or not any(row.server):
        serving = ", ".join(kind for kind, one in SYSTEMS.items() if one.clients == "text" and any(one.server))
        words = f'{file}: systems.{name}.kind: "{system.kind}": has no API for outside clients; allowed: {serving}'
        raise CommandError(words, ExitCode.BAD_INPUT)


def main(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM; then concludes the run as any other."""
    spec, text = run.read(arguments.file, arguments.overrides)
    _check_that_it_serves(arguments.file, spec)
    # The clients come from outside: the experiment's own workload is not sent.
    spec = msgspec.structs.replace(spec, workload=msgspec.structs.replace(spec.workload, requests=0))
    if arguments.on == "mininet" and not is_root():
        raise CommandError("--on mininet needs root; --on sim serves from one process", ExitCode.HOST_CANNOT)
    try:
        # Serving is always in wall time: an outside client has no other.
        prepared = prepare(spec, arguments.out or runs_folder(), clock="wall", text=text,
                           overrides=arguments.overrides, command=["looplane", *sys.argv[1:]],
                           wire_profile=profile_for_a_run() if arguments.on == "mininet" else MODELLED)  # fmt: skip
    except (RunFolderError, ValueError) as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    folder = prepared.folder
    with Signals().listening(), held(folder.control / LOCK):
        end = _serve(prepared, arguments)
        well = end.code == ExitCode.PASSED
        if arguments.on == "mininet":
            finish(folder, ending_of(end, prepared.trials[0], prepared.plans[0].label))
        else:
            finish(folder, Ending("passed") if well else Ending("errored", end.last_words))
    say(f"the run is in {folder.path}")
    if end.code == ExitCode.HOST_CANNOT:
        raise CommandError(end.last_words, ExitCode.HOST_CANNOT)
    return ExitCode.PASSED if well else ExitCode.ERRORED


def _serve(prepared: Prepared, arguments: argparse.Namespace) -> WallEnd:
    """Serves the first trial until a signal comes, and tells the address meanwhile."""
    trial = prepared.trials[0]
    prepared.folder.set_status("running")
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(trial, ended, arguments.json), daemon=True)
    teller.start()
    try:
        if arguments.on == "mininet":
            return launch_wall(trial, serve=True, progress=say)
        return serve_in_process(trial, progress=say)
    finally:
        ended.set()
        teller.join()


def _tell(trial: RunFolder, ended: threading.Event, as_json: bool) -> None:
    """Prints the base URL once the server has said it, and how to use it."""
    path: Path = trial.control / "serve.json"
    while not path.is_file():
        if ended.wait(0.05):
            return
    address = json.loads(path.read_text())["base_url"]
    if as_json:
        print(json.dumps({"base_url": address, "folder": str(trial.path)}), flush=True)
        return
    print(address, flush=True)
    say(f"  curl {address}/completions -H 'content-type: application/json' "
            """-d '{"model": "llama-3-8b", "prompt": "It was", "max_tokens": 16, "stream": true}'""")  # fmt: skip
    say("  stop with Ctrl-C")
