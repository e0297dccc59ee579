"""`looplane worker`: joins this machine as a bench to a console elsewhere. runnerd and a worker, no web process.

The console's database, its queue and its folder of runs are shared; which runs come here is decided there, by what
this bench says of itself (webui.benches). `looplane stop` ends it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial

from testbed.command.bench_flags import BenchFlags, add_bench_arguments, read_bench_flags
from testbed.command.daemon import only_one, say, started, supervised
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import Installation, prepare_installation, stage_source
from testbed.command.places import runs_folder, state_folder
from testbed.command.services import check_interpreter, check_servers, check_tables, runnerd_service, worker_service
from testbed.command.supervise import Supervisor

_NEEDED = {
    "DATABASE_URL": "the console's PostgreSQL",
    "REDIS_URL": "the console's Redis",
    "LOOPLANE_RUNS": "the console's folder of runs, mounted here",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The bench's name, tags, and whether simulations come here too."""
    add_bench_arguments(parser, required=True)
    parser.add_argument("--detach", action="store_true", help="go on in the background once it has started")


def main(arguments: argparse.Namespace) -> int:
    """Starts the bench and stays until it is stopped."""
    bench = read_bench_flags(arguments)
    check_environment(os.environ)
    return started(partial(_serve, bench), detach=arguments.detach)


def check_environment(caller: Mapping[str, str]) -> None:
    """What a bench shares with its console must be named. Raises CommandError."""
    missing = [f"{name} ({what})" for name, what in _NEEDED.items() if not caller.get(name)]
    if missing:
        raise CommandError(f"a bench of a console elsewhere needs {', '.join(missing)}", ExitCode.BAD_INPUT)
    if not runs_folder().is_dir():
        words = f"LOOPLANE_RUNS: {runs_folder()} is not there; mount the console's folder of runs"
        raise CommandError(words, ExitCode.HOST_CANNOT)


def _serve(bench: BenchFlags, ready: Callable[[], None]) -> int:
    place = prepare_installation(state_folder(), runs_folder())
    with only_one(place):
        stage_source(place)
        check_interpreter(place)
        check_servers(place)
        check_tables(place)
        supervisor = Supervisor([*runnerd_service(place), worker_service(place, bench)], say)
        with supervised(place, supervisor):
            announce(place, bench)
            ready()
            supervisor.run()
    return ExitCode.PASSED


def announce(place: Installation, bench: BenchFlags) -> None:
    """What this machine is now, on standard output."""
    takes = [word for word, true in (("emulations", place.privileged), ("simulations", bench.simulates)) if true]
    lines = [f"Bench     {bench.name}", f"Tags      {', '.join(bench.tags) or 'none'}"]
    lines += [f"Takes     {' and '.join(takes) or 'nothing: emulations need root, and --no-sim was given'}"]
    lines += [f"Runs      {place.runs}", f"Logs      {place.logs}", "Stop      ./looplane stop, or Ctrl-C here"]
    print("\n".join(lines), flush=True)
