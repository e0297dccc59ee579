"""`python -m topologies run|doctor|calibrate|clean|pids|image`: the privileged side of the looplane command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from testbed.command.exit_codes import ExitCode


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one sub-command and returns its exit code (see `ExitCode`)."""
    parser = argparse.ArgumentParser(prog="python -m topologies", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", help="carry out the plan of a run folder")
    run.add_argument("folder", type=Path, metavar="RUNFOLDER")
    kinds = ("docker", "namespace", "auto")
    run.add_argument("--nodes", choices=kinds, help="what a node is; auto: docker where it can; default: as planned")
    run.add_argument("--serve", action="store_true", help="serve until a signal, through a port on loopback")
    run.add_argument("--starter", type=int, default=0, metavar="PID", help="end when this parent does; default: any")
    doctor = verbs.add_parser("doctor", help="say what this host can emulate")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    calibrate = verbs.add_parser("calibrate", help="measure this host's wire and keep its profile")
    calibrate.add_argument("--json", action="store_true", help="print one JSON object")
    clean = verbs.add_parser("clean", help="remove what dead runs have left")
    clean.add_argument("--dry-run", action="store_true", help="only name what would be removed")
    clean.add_argument("--label", help="only this run's label")
    pids = verbs.add_parser("pids", help="print the pids of all processes of a node's software")
    pids.add_argument("folder", type=Path, metavar="RUNFOLDER")
    pids.add_argument("--node", required=True, metavar="NAME")
    verbs.add_parser("image", help="build the base image of containerised nodes, if it is missing")
    options = parser.parse_args(arguments)
    if options.verb == "doctor":
        return _doctor(as_json=options.json)
    if os.geteuid() != 0:
        print(f"topologies {options.verb} needs root: it makes namespaces and containers", file=sys.stderr)
        return ExitCode.HOST_CANNOT
    match options.verb:
        case "run":
            return _run(options.folder, options.nodes, serve=options.serve, starter=options.starter)
        case "calibrate":
            return _calibrate(as_json=options.json)
        case "clean":
            return _clean(dry_run=options.dry_run, label=options.label)
        case "pids":
            return _pids(options.folder, options.node)
        case _:
            return _image()


def _run(folder: Path, nodes: str | None, *, serve: bool, starter: int) -> int:
    from topologies import abilities
    from topologies.naming import BadName

    lacking = abilities.lacking_for_a_run()
    if lacking:
        for finding in lacking:
            print(f"this host cannot: {finding.name}: {finding.detail} ({finding.remedy})", file=sys.stderr)
        return ExitCode.HOST_CANNOT
    refused = _refused_hardware(folder)
    if refused:
        for line in refused:
            print(f"this host cannot: {line}", file=sys.stderr)
        return ExitCode.HOST_CANNOT
    # It imports mininet, which `lacking_for_a_run` has made sure of.
    from topologies.bench_run import execute
    from topologies.run_ends import FolderTaken, HostCannot

    try:
        result = execute(folder, nodes, serve=serve, starter=starter)
    except FileNotFoundError as fault:
        print(f"{fault.filename}: there is none", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except (msgspec.ValidationError, msgspec.DecodeError) as fault:
        print(f"{folder / 'plan.json'}: {fault}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except BadName as fault:
        print(fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except HostCannot as fault:
        print(f"this host cannot: {fault}", file=sys.stderr)
        return ExitCode.HOST_CANNOT
    except FolderTaken as fault:
        print(fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except OSError as fault:
        print(f"{fault.filename or folder}: {fault.strerror}", file=sys.stderr)
        return ExitCode.ERRORED
    if result.outcome == "errored":
        print(result.detail, file=sys.stderr)
    if result.teardown:
        print(f"tear-down: {result.teardown}", file=sys.stderr)
    return ExitCode.PASSED if result.outcome == "completed" else ExitCode.ERRORED


def _refused_hardware(folder: Path) -> list[str]:
    """Real parts that the plan in `folder` asks for and this run cannot have; nothing else is said of the plan here."""
    from testbed.experiment.plan import read_plan
    from topologies import allowed_hardware, hardware, node_storage, rdma, reaper

    try:
        plan = read_plan((folder / "plan.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return []
    if not plan.hardware:
        return []
    try:
        forbidden = allowed_hardware.forbidden(plan.hardware, os.environ)
    except allowed_hardware.BadList as fault:
        return [str(fault)]
    if forbidden:
        return forbidden
    reaper.reap()  # a dead run may still have what this one asks for
    return [*hardware.refusals(plan), *node_storage.refusals(plan), *rdma.refusals(plan.hardware.rnics)]


def _doctor(*, as_json: bool) -> int:
    from topologies import abilities

    findings = abilities.probe_all()
    usable = not abilities.lacking(findings)
    if as_json:
        print(msgspec.json.encode({"can_emulate": usable, "findings": findings}).decode())
    else:
        for line in abilities.lines(findings):
            print(line)
    return ExitCode.PASSED if usable else ExitCode.HOST_CANNOT


def _calibrate(*, as_json: bool) -> int:
    from testbed.command.calibrated import keep
    from topologies.calibration import CannotMeasure, measure

    try:
        profile = measure()
        keep(profile)
    except (CannotMeasure, OSError) as fault:
        print(f"this host cannot be measured: {fault}", file=sys.stderr)
        return ExitCode.HOST_CANNOT
    print(msgspec.json.encode(profile).decode() if as_json else profile.words())
    return ExitCode.PASSED


def _clean(*, dry_run: bool, label: str | None) -> int:
    from topologies import reaper
    from topologies.naming import is_label

    if label is not None and not is_label(label):
        print(f"--label: {label!r} is not a run's label: six hex digits, the end of its id", file=sys.stderr)
        return ExitCode.BAD_INPUT
    reaped = reaper.reap(dry_run=dry_run, only=label)
    for leftover in reaped.removed:
        print(f"{'would remove' if dry_run else 'removed'} {leftover}")
    for leftover, fault in reaped.failed:
        print(f"could not remove {leftover}: {fault}", file=sys.stderr)
    if not reaped.removed and not reaped.failed:
        print("nothing of a dead run is left")
    return ExitCode.ERRORED if reaped.failed else ExitCode.PASSED


def _pids(folder: Path, node: str) -> int:
    from testbed.experiment.plan import read_plan
    from topologies.bench_pids import software_pids

    try:
        plan = read_plan((folder / "plan.json").read_bytes())
        plan.node(node)
    except FileNotFoundError as fault:
        print(f"{fault.filename}: there is none", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except KeyError:
        names = ", ".join(known.name for known in plan.nodes)
        print(f"{folder / 'plan.json'}: no node {node!r}; it has {names}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    found = software_pids(plan, node)
    print(json.dumps(found))
    return ExitCode.PASSED if found else ExitCode.ERRORED


def _image() -> int:
    from topologies import docker_host, images
    from topologies.programs import ProgramFailed

    try:
        with docker_host.engine("image") as docker:
            print(images.ensure(docker, lambda text: print(text, file=sys.stderr)))
    except (docker_host.DockerFault, ProgramFailed) as fault:
        print(fault, file=sys.stderr)
        return ExitCode.HOST_CANNOT
    return ExitCode.PASSED


if __name__ == "__main__":
    sys.exit(main())
