"""`looplane VERB …`: finds the verb's module, parses its arguments and turns foreseen faults into one line each."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from typing import NamedTuple

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.telling import words_of
from testbed.events.log import LogError
from testbed.experiment.run_folder import RunFolderError


class Verb(NamedTuple):
    """A row of the table of verbs. The module is imported only when its verb is used, so that each starts fast."""

    summary: str
    module: str


VERBS: dict[str, Verb] = {
    "demo": Verb("run the demonstration: Blink served end to end on an emulated network", "testbed.command.demo"),
    "test": Verb("run every check that CI runs", "testbed.command.check"),
    "up": Verb("start the web console; prints its address, user and a one-time password", "testbed.command.up"),
    "worker": Verb("join this machine as a bench to a console elsewhere", "testbed.command.worker"),
    "stop": Verb("stop the web console or bench of this machine", "testbed.command.stop"),
    "doctor": Verb("say what this host can emulate, and what would help", "testbed.command.doctor"),
    "calibrate": Verb("measure this host's wire anew, for the plans of runs", "testbed.command.calibrate"),
    "validate": Verb("read experiment files and name every fault", "testbed.command.validate"),
    "run": Verb("run an experiment file", "testbed.command.run"),
    "serve": Verb("serve an experiment's system to OpenAI-compatible clients", "testbed.command.serve"),
    "remote": Verb("run an experiment on a console elsewhere, for CI", "testbed.command.remote"),
    "report": Verb("print a finished run's report and write its HTML page", "testbed.command.report"),
    "compare": Verb("compare finished runs: what differs, what came of it", "testbed.command.compare"),
    "export": Verb("export a run as a Perfetto trace, CSV, JSON or JUnit XML", "testbed.command.export"),
    "pids": Verb("print the processes of a node of a live run", "testbed.command.pids"),
    "lanes": Verb("show or change the virtual lanes of a live run", "testbed.command.lanes"),
    "clean": Verb("remove what dead runs have left on this host", "testbed.command.clean"),
    "bench": Verb("measure this host: slots, rings, RDMA operations, events", "testbed.command.bench"),
    "parity": Verb("run an experiment under both clocks and print how far they are apart", "testbed.command.parity"),
    "reproduce": Verb("print the tables of Blink's evaluation, ours beside the paper's", "testbed.command.reproduce"),
    "openapi": Verb("print the description of the console's REST API (OpenAPI 3.1)", "testbed.command.openapi"),
    "schema": Verb("print the JSON schema of experiment files", "testbed.command.schema"),
}


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser; only the module of `verb` is loaded, the others are named by their summary."""
    parser = argparse.ArgumentParser(
        prog="looplane",
        description="Hardware-in-the-loop emulation testbed for CPU-free and dual-path LLM serving.",
        epilog="Exit codes: 0 passed, 1 an expectation failed, 2 bad input, 3 this host cannot (says why), "
        "4 errored or fidelity invalid.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, row in VERBS.items():
        child = verbs.add_parser(name, help=row.summary, description=row.summary[0].upper() + row.summary[1:] + ".")
        if name == verb:
            module = importlib.import_module(row.module)
            module.add_arguments(child)
            child.set_defaults(main=module.main)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs one verb and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("help", "-h", "--help"):
        build_parser(None).print_help()
        return ExitCode.PASSED if words else ExitCode.BAD_INPUT
    arguments = build_parser(words[0]).parse_args(words)
    try:
        return int(arguments.main(arguments))
    except CommandError as error:
        print(f"looplane: {error}", file=sys.stderr)
        return error.code
    except (OSError, MemoryError, LogError, RunFolderError) as fault:
        if isinstance(fault, BrokenPipeError):  # the reader of a pipe went away: nobody is left to tell
            sys.stderr.close()
            return ExitCode.ERRORED
        print(f"looplane: {words_of(fault)}", file=sys.stderr)
        return ExitCode.BAD_INPUT if isinstance(fault, LogError | RunFolderError) else ExitCode.ERRORED
    except Exception as fault:  # noqa: BLE001  # a bug: whoever reports it needs the traceback
        traceback.print_exc()
        print(f"looplane: {words_of(fault)} (a fault of ours; please report the lines above)", file=sys.stderr)
        return ExitCode.ERRORED
    except KeyboardInterrupt:
        return ExitCode.ERRORED


if __name__ == "__main__":
    sys.exit(main())
