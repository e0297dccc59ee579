"""`looplane parity [FILE…]`: the same experiment on an emulated network and under the simulated clock, side by side.

For each file: the self-test of this host says what its wire gives, a short calibration emulation (other seed) measures
what the front network takes, the repeats are emulated, and the twin of each is simulated with its seeds.
`testbed.experiment.parity` has the metrics and bounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.command.calibrated import profile_for_a_run
from testbed.command.conduct import conduct
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import EXPERIMENTS, is_root, runs_folder
from testbed.command.run import read
from testbed.command.telling import say
from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.conclusion import results_of
from testbed.experiment.launch import Prepared, prepare
from testbed.experiment.parity import Parity, compare, parity_text
from testbed.experiment.run_folder import RunFolderError
from testbed.experiment.spec import Spec
from testbed.experiment.summary import TrialResults, selection_of
from testbed.experiment.twin import FrontDelays, NotMeasured, WireCheck, front_delays, twin_of, wire_check

DEFAULT_FILES = (EXPERIMENTS / "blink" / "parity.toml", EXPERIMENTS / "dualpath" / "small.toml")
CALIBRATION_REQUESTS = 16
"""Requests of the calibration run: about 400 tokens, of which each gives a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files, repeats and form."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE",
        help="experiments (TOML); default: blink/parity.toml and dualpath/small.toml",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="emulations of each, with seeds of their own (default 5)"
    )
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="K=V", help="override, as workload.requests=8"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the run folders are made")
    parser.add_argument("--json", action="store_true", help="print file, comparisons and wires of each, not tables")


def main(arguments: argparse.Namespace) -> int:
    """Compares every file. Exit 0: all bounds hold; 1: one does not; 4: nothing faithful to compare."""
    if not is_root():
        raise CommandError("parity needs root: it emulates (namespaces, Mininet, containers)", ExitCode.HOST_CANNOT)
    if arguments.repeats < 1:
        raise CommandError(f"parity: --repeats {arguments.repeats}: at least 1", ExitCode.BAD_INPUT)
    files = arguments.files or [str(path) for path in DEFAULT_FILES]
    told: list[dict[str, Any]] = []
    found: list[Parity] = []
    for file in files:
        overrides = [*arguments.overrides, f"repeats={arguments.repeats}"]
        spec, text = read(file, overrides)
        calibrating, _ = read(file, [*overrides, "repeats=1", f"seed={spec.seed + 1}", *_few_requests(spec)])
        here, wires = _compare(spec, text, calibrating, overrides, arguments.out or runs_folder())
        found += here
        told.append({"file": file, "comparisons": [msgspec.to_builtins(one) for one in here], "wires": wires})
        if not arguments.json:
            lines = [line for parity in here for line in parity_text(parity)]
            checks = [f"wire in the faithful emulations of {name}: {check.words()}" for name, check in wires.items()]
            print("\n".join([f"{file}: {spec.title}", *lines, *checks]), flush=True)
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told), indent=1).decode() + "\n")
    if not all(parity.comparable for parity in found):
        return ExitCode.ERRORED
    return ExitCode.PASSED if all(parity.held for parity in found) else ExitCode.EXPECTATION_FAILED


def _few_requests(spec: Spec) -> list[str]:
    return [f"workload.requests={CALIBRATION_REQUESTS}"] if spec.workload.requests > CALIBRATION_REQUESTS else []


def _compare(
    spec: Spec, text: bytes, calibrating: Spec, overrides: Sequence[str], parent: Path
) -> tuple[tuple[Parity, ...], dict[str, WireCheck]]:
    """Calibrates, emulates, simulates the twins. The folders stay, for whoever wants to look.

    Systems that serve agents need no calibration: what they wait for is KV, whose images have the modelled rates at
    every dilation and byte_scale, so the plain simulation is their twin. (An experiment has systems of one sort only.)
    """
    profile = profile_for_a_run()
    agents = all(SYSTEMS[system.kind].clients == "agents" for system in spec.systems.values())
    folders = []
    delays: dict[str, FrontDelays] = {}
    if not agents:
        say("calibration: a short emulation that measures the front network")
        measured = _prepare(calibrating, parent, clock="wall", text=text, overrides=overrides, wire_profile=profile)
        delays = _delays(measured, _run(measured, "mininet"))
        folders.append(("calibration", measured))
    real = _prepare(spec, parent, clock="wall", text=text, overrides=overrides, wire_profile=profile)
    emulated = _run(real, "mininet")
    twin = _prepare(spec, parent, clock="simulated", text=text, overrides=overrides)
    wires: dict[str, WireCheck] = {}
    if not agents:
        where = [_where(results) for results in emulated]
        plans = tuple(
            twin_of(plan, plain, delays[name])
            for plan, plain, name in zip(real.plans, twin.plans, where, strict=True)
        )  # fmt: skip
        for trial, plan in zip(twin.trials, plans, strict=True):
            trial.write_plan(plan)
        twin = twin._replace(plans=plans)
        for name in delays:
            trials = [index for index, other in enumerate(where) if other == name]
            hops = [emulated[index].hops for index in trials if emulated[index].fidelity.verdict == "faithful"]
            check = wire_check(hops, real.plans[trials[0]])
            wires |= {} if check is None else {name: check}
    simulated = _run(twin, "sim")
    for kind, prepared in (*folders, ("emulated", real), ("simulated", twin)):
        say(f"{kind}: {prepared.folder.path}")
    return compare(emulated, simulated, selection_of(msgspec.to_builtins(spec.workload))), wires


def _where(trial: TrialResults) -> str:
    """System and point of a trial: what repeats have in common."""
    return f"{trial.system} {trial.point}".strip()


def _prepare(spec: Spec, parent: Path, **told: Any) -> Prepared:
    """Raises CommandError for what a clock cannot run."""
    try:
        return prepare(spec, parent, command=["looplane", *sys.argv[1:]], **told)
    except (RunFolderError, ValueError) as fault:
        raise CommandError(f"parity: {fault}", ExitCode.BAD_INPUT) from fault


def _delays(prepared: Prepared, trials: Sequence[TrialResults]) -> dict[str, FrontDelays]:
    """Of each system at each point, from the calibration run of that one."""
    found = {}
    for trial, plan in zip(trials, prepared.plans, strict=True):
        if trial.story.outcome != "passed":
            words = f"its calibration run ended as {trial.story.outcome or 'lost'}: see {prepared.folder.path}"
            raise CommandError(f"parity: {_where(trial)}: {words}", ExitCode.ERRORED)
        try:
            found[_where(trial)] = front_delays(trial.hops, plan)
        except NotMeasured as fault:
            raise CommandError(f"parity: {_where(trial)}: {fault}", ExitCode.ERRORED) from fault
    return found


def _run(prepared: Prepared, backend: Any) -> list[TrialResults]:
    """Runs every trial and folds each by itself, those that did not come to their end included."""
    summary, code = conduct(prepared, backend)
    if code == ExitCode.HOST_CANNOT:
        raise CommandError(summary.detail, code)
    return [results_of(trial, summary.outcome, summary.detail) for trial in prepared.trials]
