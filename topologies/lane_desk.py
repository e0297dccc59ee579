"""Lane tables of a live run, shown and changed: `python -m topologies.lane_desk RUNFOLDER [--port PORT …] [FIELD …]`.

The bench owns its ports' queues, so a change is asked of it: the command lays control/lanes-ask.json down, the bench,
which looks for it while it watches, changes both ends of the link (the switch's queues and the arbiter of the node's
soft RNIC), tells events/bench.jsonl (`lanes.applied`, with a line that says it was asked for) and answers in
control/lanes-answer.json. What it checks from then on is the new table. All ports that were asked for change, or none.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from testbed.command.exit_codes import ExitCode
from testbed.events.fidelity_events import LanesApplied
from testbed.experiment.plan import read_plan
from testbed.network.lanes import LaneTable
from topologies.fabric import SwitchPort
from topologies.lane_queues import PortQueues, queues_of
from topologies.lanes import LaneFault, apply, change
from topologies.programs import ProgramFailed
from topologies.registry import RunRegistry

ASK, ANSWER = "lanes-ask.json", "lanes-answer.json"
PATIENCE_S = 15.0
FIELDS = ("max_vls", "high_limit", "vlarb_high", "vlarb_low", "sl2vl", "frame_bytes", "backlogged")


UseTables: TypeAlias = Callable[[Mapping[str, Mapping[str, LaneTable]]], list[str]]
"""Has soft RNICs arbitrate by these tables, by node and interface; the nodes whose NIC has not taken them."""


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted."""

    number: int
    """Told back in the answer."""
    ports: tuple[str, ...]
    """As node.interface; empty for every port that has lanes."""
    changes: dict[str, int | str]
    """Fields of a LaneTable; empty to be shown the tables."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it."""

    number: int
    fault: str = ""
    """One line, which names what refused; then nothing is changed, but for what it says could not be put back."""
    tables: dict[str, LaneTable] = {}
    """The tables in force, by port."""
    classes: dict[str, tuple[str, ...]] = {}
    """The classes of the ports that were changed, as the kernel has them."""


class LaneDesk:
    """The bench's end. `queues` is its own table of what each port's queues should be, and is kept up to date."""

    def __init__(
        self, control: Path, ports: Sequence[SwitchPort], queues: dict[str, PortQueues], at_nics: UseTables
    ) -> None:
        self._control = control
        self._at_nics = at_nics
        self._ports = {port.name: port for port in ports if port.fabric.lanes is not None}
        self._tables = {name: port.fabric.lanes or LaneTable() for name, port in self._ports.items()}
        self._queues = queues

    def look(self, say: Callable[[str], object]) -> Iterator[LanesApplied]:
        """Serves what has been asked since the last look, if anything has; one event for each port changed."""
        path = self._control / ASK
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        path.unlink()
        try:
            ask = msgspec.json.decode(data, type=Ask)
        except msgspec.MsgspecError as bad:
            say(f"control/{ASK}: {bad}")
            return
        classes: dict[str, tuple[str, ...]] = {}
        fault = ""
        try:
            wanted = self._wanted(ask)
            classes = self._change(wanted)
            self._tables |= wanted
        except (ValueError, OSError, LaneFault, ProgramFailed) as problem:
            fault = str(problem)
            say(f"lanes not changed as asked: {fault}")
        for name in classes:
            say(f"lanes of {name} changed as asked: {_words(self._tables[name])}")
            yield LanesApplied(name, self._ports[name].port.rate_bits_per_s, classes[name])
        names = ask.ports or tuple(self._ports)
        tables = {name: self._tables[name] for name in names if name in self._tables}
        _write(self._control / ANSWER, Answer(ask.number, fault, tables, classes))

    def _change(self, wanted: Mapping[str, LaneTable]) -> dict[str, tuple[str, ...]]:
        """Both ends of every link: the switch's queues, then all NICs at once. The classes of each port.

        Raises LaneFault that names what refused, after all was put back; what could not be is in its words, and what
        should be there is what the run goes on being checked against.
        """
        classes: dict[str, tuple[str, ...]] = {}
        before = {name: self._queues[name] for name in wanted}
        try:
            for name, table in wanted.items():
                port = self._ports[name]
                try:
                    queues = queues_of(port, table)
                    classes[name] = change(port, before[name], queues)
                except (ValueError, LaneFault, ProgramFailed) as fault:
                    raise LaneFault(f"{name}: {str(fault).removeprefix(f'{name}: ')}") from fault
                self._queues[name] = queues
            self._tell_nics(wanted)
        except (OSError, LaneFault) as fault:
            stuck = [words for name in classes for words in self._put_back(name, before[name])]
            raise LaneFault("; ".join([str(fault), *stuck])) from fault
        return classes

    def _tell_nics(self, wanted: Mapping[str, LaneTable]) -> None:
        """Raises LaneFault if one does not take its table; those that had taken theirs have the old one again."""
        nodes: dict[str, dict[str, LaneTable]] = {}
        old: dict[str, dict[str, LaneTable]] = {}
        for name, table in wanted.items():
            port = self._ports[name]
            nodes.setdefault(port.node.name, {})[port.port.interface] = table
            old.setdefault(port.node.name, {})[port.port.interface] = self._tables[name]
        deaf = self._at_nics(nodes)
        if not deaf:
            return
        told = f"the soft RNIC of {', '.join(deaf)} has not taken its table"
        stuck = self._at_nics({node: tables for node, tables in old.items() if node not in deaf})
        raise LaneFault(f"{told}; that of {', '.join(stuck)} keeps the new one" if stuck else told)

    def _put_back(self, name: str, queues: PortQueues) -> Iterator[str]:
        """The queues that a port had, at the price of what waits; why not, if that fails."""
        self._queues[name] = queues
        try:
            apply(self._ports[name], queues)
        except (LaneFault, ProgramFailed, OSError) as fault:
            yield f"{name} could not be put back: {fault}"

    def _wanted(self, ask: Ask) -> dict[str, LaneTable]:
        """All tables before the first is set, so that a fault of the asker changes nothing. Raises ValueError."""
        for name in ask.ports:
            if name not in self._ports:
                raise ValueError(f"no port {name!r} with lanes; there are {', '.join(self._ports)}")
        if not ask.changes:
            return {}
        return {
            name: msgspec.convert(msgspec.structs.asdict(self._tables[name]) | ask.changes, LaneTable)
            for name in ask.ports or self._ports
        }


def ask(folder: Path, ports: Sequence[str], changes: Mapping[str, int | str]) -> Answer:
    """Asks the bench of a live run. Raises ValueError for a run that is not live, TimeoutError if it stays silent."""
    control = folder / "control"
    label = read_plan((folder / "plan.json").read_bytes()).label
    record = RunRegistry(label).record()
    if record is None or Path(record.folder) != folder.absolute() or not RunRegistry(label).live():
        raise ValueError(f"{folder}: the run is not live")
    if not (control / "start.json").exists():
        raise ValueError(f"{folder}: the run has not begun yet")
    number = time.monotonic_ns()
    _write(control / ASK, Ask(number, tuple(ports), dict(changes)))
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        if (control / ANSWER).exists():
            answer = msgspec.json.decode((control / ANSWER).read_bytes(), type=Answer)
            if answer.number == number:
                return answer
        time.sleep(0.02)
    (control / ASK).unlink(missing_ok=True)
    raise TimeoutError(f"{folder}: the bench has not answered within {PATIENCE_S:g} s")


def _words(table: LaneTable) -> str:
    return " ".join(f"{field}={getattr(table, field)}" for field in FIELDS if getattr(table, field) != "")


def _write(path: Path, what: msgspec.Struct) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.new")
    temporary.write_bytes(msgspec.json.encode(what) + b"\n")
    temporary.replace(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Ports, and a flag for each field of a lane table."""
    parser.add_argument("--port", action="append", default=[], metavar="NODE.INTERFACE", help="default: all with lanes")
    for field in FIELDS:
        kind = int if field in ("max_vls", "high_limit") else str
        parser.add_argument(f"--{field.replace('_', '-')}", type=kind, metavar="VALUE", help=f"as {field} in a spec")


def main(arguments: Sequence[str] | None = None) -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(prog="lanes", description="Show or change the lane tables of a live run.")
    parser.add_argument("folder", type=Path, metavar="RUNFOLDER")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    changes = {field: getattr(options, field) for field in FIELDS if getattr(options, field) is not None}
    try:
        answer = ask(options.folder, options.port, changes)
    except FileNotFoundError as fault:
        print(f"{fault.filename}: there is none", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except (ValueError, msgspec.MsgspecError) as fault:
        print(fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except TimeoutError as fault:
        print(fault, file=sys.stderr)
        return ExitCode.ERRORED
    for name, table in answer.tables.items():
        print(f"{name}: {_words(table)}")
        for line in answer.classes.get(name, ()):
            print(f"  {line}")
    if answer.fault:
        print(answer.fault, file=sys.stderr)
        return ExitCode.BAD_INPUT
    return ExitCode.PASSED


if __name__ == "__main__":
    sys.exit(main())
