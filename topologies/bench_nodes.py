"""The processes of one run: captures, soft RNICs, the nodes' software, the relay; started in order, watched, ended.

A soft RNIC stands for hardware: it runs outside the node's container, in its network namespace, under SCHED_FIFO where
the kernel allows it, on the same core as the software that it serves (architecture §7).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from testbed.events.fidelity_events import CaptureFinished
from testbed.events.log import EventWriter, decode_record
from testbed.events.run_events import NodeStopped
from testbed.experiment.live_lanes import claimed_path, tables_path, write_tables
from testbed.experiment.plan import NodePlan, Plan
from testbed.experiment.server_address import API_PORT, front_address, server_of
from testbed.network.lanes import LaneTable
from topologies import silicon
from topologies.accelerators import DeviceProcesses
from topologies.bench_network import BenchNetwork, Say
from topologies.bench_pids import scheduler_pid, software_pids
from topologies.cells import Cells
from topologies.fabric import NetworkFault
from topologies.naming import Names, port_name
from topologies.processes import (
    Placement,
    ProcessTable,
    Started,
    compile_source,
    end,
    fifo_allowed,
    module_command,
    python_environment,
)
from topologies.programs import ProgramFailed

_START_PATIENCE_S = 60.0
_STOP_PATIENCE_S = 3.0
_TERM_PATIENCE_S = 2.0
_TABLES_PATIENCE_S = 1.0
_POLL_S = 0.01


class NodeDied(Exception):
    """A process that the run needs has ended. Says its exit code and its last words (faults A13, G4)."""

    def __init__(self, what: str, code: int, words: str, log: Path) -> None:
        self.what = what
        self.code = code
        self.log = log
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        super().__init__(f"{what} {how}; log {log}" + (f":\n{words}" if words else " (it said nothing)"))


class _Software(NamedTuple):
    node: NodePlan
    started: Started
    container: str | None


class BenchNodes:
    """The processes of one run."""

    def __init__(
        self, plan: Plan, names: Names, network: BenchNetwork, table: ProcessTable, cells: Cells, folder: Path, say: Say
    ) -> None:
        self.plan = plan
        self.names = names
        self._network = network
        self._table = table
        self._cells = cells
        self._folder = folder
        self._say = say
        self._software: list[_Software] = []
        self._rnics: dict[str, Started] = {}
        self._lost: set[str] = set()
        """Nodes that the experiment has had killed."""
        self._devices = DeviceProcesses(plan, names, table, network.cpus)
        self._captures: dict[str, Started] = {}
        self._relay: Started | None = None

    # --- start ---

    def start_captures(self) -> None:
        """Opens every capture of the plan; returns once each sees all that passes. Raises NodeDied, TimeoutError."""
        if self.plan.captures:
            (self._folder / "captures").mkdir(exist_ok=True)
        for capture in self.plan.captures:
            name = port_name(capture.node, capture.interface)
            port = next(port for port in self._network.fabric.ports() if port.name == name)
            command = module_command(
                "emulators.capture", "--device", port.device,
                "--file", str(self._capture_file(name)), "--state", str(self._capture_state(name)),
                "--limit-mib", str(capture.limit_mib),
            )  # fmt: skip
            self._capture_state(name).unlink(missing_ok=True)
            placement = Placement(network=port.pid, cell="bench")
            self._captures[name] = self._table.start(f"capture {name}", command, placement, python_environment())
        for name, started in self._captures.items():
            self._await(started, self._capture_state(name))

    def start_rnics(self, check: Callable[[], None]) -> None:
        """Starts a soft RNIC for each node on a RoCE fabric that has no real one, and waits for their sockets.

        Raises as `start_captures`.
        """
        roce = {fabric.name for fabric in self.plan.fabrics if fabric.roce}
        soft = [node for node in self.plan.nodes if node.name not in self.plan.hardware.rnics]
        nodes = [node for node in soft if any(port.fabric in roce for port in node.ports)]
        fifo = fifo_allowed()
        if nodes and not fifo:
            self._say("this host allows no SCHED_FIFO: soft RNICs compete with everything else for the CPU", "warning")
        for node in nodes:
            command = module_command(
                "emulators.rnic", "--run", str(self._folder), "--node", node.name,
                "--socket", str(self.names.nic_socket(node.name)),
            )  # fmt: skip
            placement = Placement(
                network=self._network.fabric.pid_of(node.name), cell="nic", cpus=self._nic_cpus(node), fifo=fifo
            )
            self._rnics[node.name] = self._table.start(f"nic {node.name}", command, placement, python_environment())
        for name, started in self._rnics.items():
            self._await(started, self.names.nic_socket(name))
            check()

    def use_tables(self, tables: Mapping[str, Mapping[str, LaneTable]]) -> list[str]:
        """Has soft RNICs arbitrate their interfaces by these lane tables, by node; the nodes whose NIC has not.

        All are told, then waited for together. A node without a soft RNIC arbitrates nothing here. Raises OSError for
        a file that cannot be written; then none is told.
        """
        paths = {node: tables_path(self._folder, node) for node in tables if node in self._rnics.keys() - self._lost}
        for node, path in paths.items():
            write_tables(path, tables[node])
        for node in paths:
            self._rnics[node].signal(signal.SIGHUP)
        limit = time.monotonic() + _TABLES_PATIENCE_S
        while any(map(_awaits_its_nic, paths.values())) and time.monotonic() < limit:
            time.sleep(0.001)
        return [node for node, path in paths.items() if not _taken(path)]

    def start_software(self) -> None:
        """Starts every node's software, in its container or namespace, real devices first."""
        compile_source()
        self._devices.start(self._await)
        for node in self.plan.nodes:
            container = self._network.container(node.name)
            arguments = ("--run", str(self._folder), "--node", node.name)
            if container is not None and self._network.docker is not None:
                inside = ["python3", "-m", f"emulators.{node.role}", *arguments]
                command = self._network.docker.exec_command(container, inside)
                placement, environment = Placement(), None
            else:
                command = module_command(f"emulators.{node.role}", *arguments)
                placement = Placement(
                    network=self._network.fabric.pid_of(node.name),
                    cell=f"node-{node.name}",
                    cpus=self._network.cpus[node.name],
                )
                environment = self._network.environment(node)
            started = self._table.start(f"node {node.name}", command, placement, environment)
            self._software.append(_Software(node, started, container))

    def favour_hardware(self) -> None:
        """From here on, software of nodes that stand for other machines gives way to no process of this host."""
        refused = []
        for node in (software.node for software in self._software):
            priority = silicon.OF_ROLE.get(node.role) if node.silicon else None
            if priority is not None and not silicon.favour(software_pids(self.plan, node.name), priority):
                refused.append(node.name)
        if refused:
            self._say(f"no SCHED_FIFO for {', '.join(refused)}: this host's load slows them", "warning")

    def pids(self) -> dict[str, list[int]]:
        """Pids of each node's software (`node gpu0`), of each soft RNIC (`nic gpu0`) and of each device process that
        the run has started (`accelerator gpu0`).
        """
        software = {each.started.what: software_pids(self.plan, each.node.name) for each in self._software}
        chips = [*self._rnics.values(), *self._devices.started]
        return {**software, **{chip.what: [chip.pid] for chip in chips}}

    def start_relay(self) -> None:
        """Opens a port on loopback that leads to the serving node, and says where in control/serve.json."""
        server = server_of(self.plan)
        clients = [node for node in self.plan.nodes if node.role == "client"]
        # From a client's namespace the way leads over the front network; without one, from the server's own.
        inside = self._network.fabric.pid_of((clients[0] if clients else server).name)
        ready = self._folder / "control" / "relay.json"
        ready.unlink(missing_ok=True)
        target = f"{front_address(server)}:{API_PORT}"
        command = module_command(
            "topologies.relay", "--network", str(inside), "--target", target, "--ready", str(ready)
        )
        self._relay = self._table.start("relay", command, Placement(cell="bench"), python_environment())
        self._await(self._relay, ready)
        port = json.loads(ready.read_bytes())["port"]
        answer = self._folder / "control" / "serve.json"
        temporary = answer.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode({"base_url": f"http://127.0.0.1:{port}/v1"}) + b"\n")
        temporary.replace(answer)
        self._say(f"serving at http://127.0.0.1:{port}/v1")

    # --- watch ---

    def kill(self, node: str) -> None:
        """A node dies as by a loss of power: its NIC first, so that its peers see silence, then its software."""
        self._lost.add(node)
        if node in self._rnics:
            self._rnics[node].signal(signal.SIGKILL)
        for software in self._software:
            if software.node.name == node:
                self._signal(software, signal.SIGKILL)

    def scheduler(self, node: str) -> int | None:
        """Pid of a GPU's scheduler, which is not the owner of its memory; None while there is none."""
        return scheduler_pid(self.plan, node)

    def check_all_run(self, done: Collection[str] = ()) -> None:
        """Raises NodeDied for the first process that has ended and should not have.

        A client whose workload is done may end, and a host that only provisions may leave, both with 0; a node that
        was killed on purpose is not missed. Raises NetworkFault when a namespace has lost its keeper.
        """
        if ended := self._network.fabric.ended():
            raise NetworkFault(ended)
        for software in self._software:
            if software.node.name in self._lost:
                continue
            code = software.started.code()
            may_leave = software.node.name in done or (software.node.role == "host" and not software.node.processes)
            if code is not None and not (code == 0 and may_leave):
                raise self._death(software.started, code)
        relay = [self._relay] if self._relay else []
        rnics = [rnic for name, rnic in self._rnics.items() if name not in self._lost]
        for started in [*rnics, *self._devices.started, *self._captures.values(), *relay]:
            code = started.code()
            if code is not None:
                raise self._death(started, code)

    # --- end ---

    def end(self) -> None:
        """Ends all: software first, which has been asked by `stop`, then the NICs, then the captures."""
        counts = {"node": self._software, "soft RNIC": self._rnics, "capture": self._captures}
        told = [f"{len(all_of)} {what}{'' if len(all_of) == 1 else 's'}" for what, all_of in counts.items() if all_of]
        if told:
            self._say(f"ending {', '.join(told)}")
        if self._relay is not None:
            end([self._relay], _TERM_PATIENCE_S)
        for software in self._software:  # one that was stopped could not see `stop`
            self._signal(software, signal.SIGCONT)
        limit = time.monotonic() + _STOP_PATIENCE_S
        for software in self._software:
            software.started.wait(max(0.0, limit - time.monotonic()))
        for number, patience in ((signal.SIGTERM, _TERM_PATIENCE_S), (signal.SIGKILL, _TERM_PATIENCE_S)):
            running = [software for software in self._software if software.started.code() is None]
            for software in running:
                self._say(f"{software.started.what} did not stop when asked: {number.name}", "warning")
                self._signal(software, number)
            limit = time.monotonic() + patience
            for software in running:
                software.started.wait(max(0.0, limit - time.monotonic()))
        self._devices.end(_TERM_PATIENCE_S)
        end(self._rnics.values(), _TERM_PATIENCE_S)
        end(self._captures.values(), _TERM_PATIENCE_S)
        self._table.end_all(0.0)

    def ends(self, now: Callable[[], int]) -> Iterator[CaptureFinished]:
        """Completes the log of each node whose software could not, and tells what the captures have."""
        for software in self._software:
            for name in software.node.log_names():
                self._complete_log(name, software.started, now())
        for name in self._lost & self._rnics.keys():
            self._complete_log(f"{name}-nic", self._rnics[name], now())
        for name in self._captures:
            packets, whole, lost, drift = -1, False, 0, 0
            with suppress(FileNotFoundError, ValueError, KeyError):
                state = json.loads(self._capture_state(name).read_bytes())
                packets, whole = state["packets"], state["whole"]
                lost, drift = state["lost"], state["clock_drift_ns"]
            yield CaptureFinished(name, f"captures/{name}.pcap", packets, whole, lost, drift)

    # --- inside ---

    def _nic_cpus(self, node: NodePlan) -> tuple[int, ...]:
        if node.role != "host" and node.silicon:
            return self._network.cpus[node.name]
        # A NIC is hardware wherever its node's software runs; only a device's serves the software beside it.
        hardware = [other.name for other in self.plan.nodes if other.cores == "hardware"]
        return self._network.cpus[hardware[0]] if hardware else self._network.cpus[node.name]

    def _await(self, started: Started, path: Path) -> None:
        limit = time.monotonic() + _START_PATIENCE_S
        while not path.exists():
            code = started.code()
            if code is not None:
                raise self._death(started, code)
            if time.monotonic() > limit:
                raise TimeoutError(f"{started.what} is not ready after {_START_PATIENCE_S:.0f} s; log {started.log}")
            time.sleep(_POLL_S)

    def _death(self, started: Started, code: int) -> NodeDied:
        words = started.last_words()
        with suppress(ProgramFailed):
            words = "\n".join(filter(None, (words, self._network.ended_container())))
        return NodeDied(started.what, code, words, started.log)

    def _signal(self, software: _Software, number: int) -> None:
        """Signals a node's software: the cell's processes, or a container's but its first, which only sleeps."""
        if software.container is None:
            software.started.signal(number)
            return
        if self._network.docker is None or software.started.code() is not None:
            return
        self._network.docker.signal(software.container, number)

    def _complete_log(self, name: str, started: Started, now: int) -> None:
        code = started.code()
        path = self._folder / "events" / f"{name}.jsonl"
        last = None
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - (1 << 20)))
                lines = file.read().split(b"\n")[:-1]
            with suppress(msgspec.MsgspecError, IndexError):
                last = decode_record(lines[-1])
        if last is not None and isinstance(last.event, NodeStopped):
            return
        with EventWriter(path, name) as writer:
            moment = max(now, last.t if last is not None else 0)
            words = started.last_words(4)
            writer.write(moment, NodeStopped(code=code if code is not None else -1, detail=words))

    def _capture_file(self, name: str) -> Path:
        return self._folder / "captures" / f"{name}.pcap"

    def _capture_state(self, name: str) -> Path:
        return self._folder / "control" / f"capture-{name}.json"


def _awaits_its_nic(path: Path) -> bool:
    """Whether tables that were laid at `path` are not in force yet."""
    return path.exists() or claimed_path(path).exists()


def _taken(path: Path) -> bool:
    """Whether a NIC has taken what was laid at `path`; takes it back from one that has not claimed it."""
    try:
        path.unlink()
    except FileNotFoundError:
        return True  # what is claimed comes into force with the NIC's next turn
    return False
