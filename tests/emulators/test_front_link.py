"""Agents and their server over a real connection: two processes or two nodes in one, a real run folder each."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from emulators.front_link import TurnClient, TurnServer
from emulators.node import NodeRun
from testbed.clocks.wall import Epoch
from testbed.events.log import Record, read_log
from testbed.events.ordering import merge
from testbed.experiment.plan import NodePlan, Plan, PortPlan, write_plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import read_spec
from testbed.experiment.server_address import TURNS_PORT
from testbed.experiment.sweep import places
from testbed.machine import Deliver, Effect, Effects, Message
from testbed.serving.turn_frames import frame
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed
from testbed.units import MILLISECOND
from testbed.workload.agents import Agents
from testbed.workload.trajectories import of_lengths

DUALPATH = Path(__file__).resolve().parents[2] / "fixtures" / "experiments" / "dualpath" / "small.toml"
PID = os.getpid()
SERVER = f"127.{10 + PID % 200}.{PID // 200 % 250}.2"
"""All of 127/8 is loopback; the port is the plan's, so tests that run beside each other have addresses of their own."""


class Echo:
    """A server that answers every turn in two pieces, `service` apart; `fails` names turns that it fails."""

    name = "api"

    def __init__(self, service: int = MILLISECOND, fails: tuple[str, ...] = ()) -> None:
        self.service = service
        self.fails = fails
        self.seen: list[Turn] = []
        self._due: list[tuple[int, Message]] = []

    def receive(self, now: int, message: Message) -> Effects:
        assert isinstance(message, SubmitTurn)
        turn = message.turn
        self.seen.append(turn)
        if turn.name in self.fails:
            return (Deliver("agents", TurnFailed(turn.name, "told to")),)
        rest = TurnAdvanced(turn.name, turn.generate_tokens - 1, done=True)
        self._due.append((now + self.service, rest))
        return (Deliver("agents", TurnAdvanced(turn.name, 1)),)

    def deadline(self) -> int | None:
        return self._due[0][0] if self._due else None

    def wake(self, now: int) -> Effects:
        effects: list[Effect] = []
        while self._due and self._due[0][0] <= now:
            effects.append(Deliver("agents", self._due.pop(0)[1]))
        return effects


def plan_of(address: str) -> Plan:
    def node(name: str, role: str, address: str) -> NodePlan:
        port = PortPlan("front0", "front", address, "02:00:00:00:00:01", 10**9, 10**9)
        return NodePlan(name=name, role=role, cores="host", memory_mib=64, ports=(port,))  # type: ignore[arg-type]

    return Plan(
        run="20260101-000000-abcdef", label="abcdef", clock="wall", system="dualpath", kind="dualpath", seed=1,
        dilation=1.0, byte_scale=1, path_mtu=4096,
        fabrics=(),
        nodes=(node("client0", "client", "127.0.0.1"), node("sched0", "scheduler", address)),
        parameters={}, workload={},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "20260101-000000-abcdef"
    (folder / "control").mkdir(parents=True)
    (folder / "plan.json").write_bytes(write_plan(plan_of(SERVER)))
    return folder


class Pair:
    """Both nodes in this process, turned by hand."""

    def __init__(self, folder: Path, agents: Agents, echo: Echo) -> None:
        self.server_run, self.client_run = NodeRun(folder, "sched0"), NodeRun(folder, "client0")
        self.server = TurnServer(self.server_run)
        self.client = TurnClient(self.client_run, agents)
        self.server_run.attach((echo,), outside=self.server.carry)
        self.client_run.attach((agents,), outside=self.client.carry)
        epoch = Epoch(time.monotonic_ns(), 1.0)
        self.server_run.start(epoch)
        self.client_run.start(epoch)

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < until, f"in 10 s there was no {what}"
            self.client_run.turn()
            if self.server_run.wake_fd >= 0:
                self.server_run.turn()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.client_run.finish(0)
        self.server_run.finish(0)


def agents_of(count: int, turns: int) -> Agents:
    return Agents([of_lengths(number, [(50, 4)] * turns) for number in range(count)], [0] * count)


def logged(folder: Path, node: str, kind: str) -> list[Record]:
    return [record for record in read_log(folder / "events" / f"{node}.jsonl") if type(record.event).__name__ == kind]


def test_every_turn_goes_over_and_every_answer_comes_back(folder: Path) -> None:
    agents, echo = agents_of(20, 6), Echo()
    pair = Pair(folder, agents, echo)
    pair.turn_until(lambda: agents.done, "end of the workload")
    pair.client_run.turn()
    pair.close()
    assert len(echo.seen) == len({turn.name for turn in echo.seen}) == 120
    assert {turn.prompt for turn in echo.seen if turn.number == 5} == {
        (TokenRun(number, 0, 5 * 54 + 50),) for number in range(20)
    }
    assert (folder / "control" / "client0.done").exists()
    assert len(logged(folder, "client0", "RequestFinished")) == 120
    assert len(logged(folder, "client0", "AgentFinished")) == 20
    assert not logged(folder, "sched0", "LineLogged")
    assert len(list(merge(folder / "events"))) > 240


def test_a_failed_turn_reaches_its_agent(folder: Path) -> None:
    agents = agents_of(3, 4)
    pair = Pair(folder, agents, Echo(fails=("a0001.t002",)))
    pair.turn_until(lambda: agents.done, "end of the workload")
    pair.close()
    (failed,) = logged(folder, "client0", "RequestFailed")
    assert failed.event.error == "told to"  # type: ignore[attr-defined]
    assert len(logged(folder, "client0", "RequestFinished")) == 10


def test_a_lost_connection_fails_the_open_turns_once_and_those_that_follow(folder: Path) -> None:
    # Agent 1 starts when the server is long gone.
    agents = Agents([of_lengths(n, [(50, 4)] * 3) for n in range(2)], [0, 300 * MILLISECOND])
    echo = Echo(service=10**12)
    pair = Pair(folder, agents, echo)
    pair.turn_until(lambda: bool(echo.seen), "turn at the server")
    pair.server.close()
    pair.server_run.finish(0)
    pair.server_run.wake_fd = -1
    pair.turn_until(lambda: agents.done, "end of the workload")
    pair.client_run.turn()
    pair.client.close()
    pair.client_run.finish(0)
    failures = [record.event for record in logged(folder, "client0", "RequestFailed")]
    assert [event.name for event in failures] == ["a0000.t000", "a0001.t000"]  # type: ignore[attr-defined]
    assert all("sched0 is lost" in event.error for event in failures)  # type: ignore[attr-defined]
    assert len(logged(folder, "client0", "LineLogged")) == 1
    assert (folder / "control" / "client0.done").exists()


def test_without_a_server_every_turn_fails_and_nothing_hangs(folder: Path) -> None:
    agents = agents_of(2, 3)
    run = NodeRun(folder, "client0")
    link = TurnClient(run, agents)
    run.attach((agents,), outside=link.carry)
    run.start(Epoch(time.monotonic_ns(), 1.0))
    run.turn()
    run.turn()
    link.close()
    run.finish(0)
    assert agents.done
    errors = [record.event.error for record in logged(folder, "client0", "RequestFailed")]  # type: ignore[attr-defined]
    assert len(errors) == 2
    assert all("no connection" in error for error in errors)


STRANGER = [
    b"GET /v1/models HTTP/1.1\r\n\r\n",
    struct.pack(">I", 1 << 30),
    frame(TurnAdvanced("a0000.t000", 1)),
    frame(SubmitTurn(Turn("stranger", 0, 0, (TokenRun(0, 0, 9),), 0, (TokenRun(0, 9, 1),)))) * 2,
]
"""HTTP, a frame without end, an answer, and the name of an open turn once more."""


@pytest.mark.parametrize("data", STRANGER)
def test_a_stranger_is_cut_off_and_disturbs_nobody(folder: Path, data: bytes) -> None:
    agents, echo = Agents([of_lengths(0, [(50, 4)] * 3)], [50 * MILLISECOND]), Echo()
    pair = Pair(folder, agents, echo)
    with socket.create_connection((SERVER, TURNS_PORT)) as stranger:
        stranger.sendall(data)
        pair.turn_until(lambda: bool(select.select([stranger], [], [], 0)[0]), "end of the stranger's connection")
        stranger.settimeout(5)
        while stranger.recv(4096):
            pass
    pair.turn_until(lambda: agents.done, "end of the workload")
    pair.close()
    names = [turn.name for turn in echo.seen]
    assert [name for name in names if name != "stranger"] == ["a0000.t000", "a0000.t001", "a0000.t002"]
    # The answer to agents who are gone is dropped; that they are gone with an open turn is said.
    assert len(logged(folder, "sched0", "LineLogged")) == names.count("stranger")


def test_more_than_a_socket_takes_goes_in_pieces(folder: Path) -> None:
    """One turn of 60,000 runs is 700 KB or so; twenty of them fill every buffer."""
    rounds = []
    for number in range(20):
        runs = tuple(TokenRun(number, 10 * place, 2) for place in range(60_000))
        trajectory = of_lengths(number, [(1, 2)])
        rounds.append(
            msgspec.structs.replace(trajectory, rounds=(msgspec.structs.replace(trajectory.rounds[0], append=runs),))
        )
    agents, echo = Agents(rounds, [0] * 20), Echo()
    pair = Pair(folder, agents, echo)
    pair.turn_until(lambda: agents.done, "end of the workload")
    pair.close()
    assert {turn.prompt_tokens for turn in echo.seen} == {120_000}


PROGRAM = """
import sys
from emulators.front_link import TurnClient, TurnServer
from emulators.node import NodeRun
from emulators.node_life import run_node
from tests.emulators.test_front_link import Echo, agents_of

def build(run: NodeRun):
    if run.name == "sched0":
        run.attach((Echo(),), outside=TurnServer(run).carry)
    else:
        agents = agents_of(8, 200)
        run.attach((agents,), outside=TurnClient(run, agents).carry)

raise SystemExit(run_node(build))
"""


@pytest.fixture
def start_node(folder: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(node: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, "--run", str(folder), "--node", node]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_two_processes_meet_after_the_barrier_and_a_killed_server_leaves_no_turn_open(
    folder: Path, start_node: Callable[[str], subprocess.Popen[str]]
) -> None:
    client, server = start_node("client0"), start_node("sched0")
    _wait_for(lambda: all((folder / "control" / f"{name}.ready").exists() for name in ("client0", "sched0")))
    epoch = time.monotonic_ns() + 50 * MILLISECOND
    draft = folder / "control" / "draft"
    draft.write_bytes(msgspec.json.encode(Epoch(epoch, 1.0)))
    draft.rename(folder / "control" / "start.json")
    _wait_for(lambda: len(logged(folder, "client0", "RequestFinished")) >= 50)
    server.send_signal(signal.SIGKILL)
    _wait_for((folder / "control" / "client0.done").exists)
    (folder / "control" / "stop").touch()
    assert client.wait(timeout=10) == 0
    assert len(logged(folder, "client0", "RequestFailed")) == 8
    sent = {record.event.name for record in logged(folder, "client0", "RequestSent")}  # type: ignore[attr-defined]
    ended = [
        record.event.name  # type: ignore[attr-defined]
        for kind in ("RequestFinished", "RequestFailed")
        for record in logged(folder, "client0", kind)
    ]
    assert sorted(ended) == sorted(sent)
    first = logged(folder, "client0", "RequestSent")[0]
    assert first.event.lag == first.t, "nothing is sent before the epoch"  # type: ignore[attr-defined]


def test_the_client_process_plays_the_agents_of_its_plan(tmp_path: Path) -> None:
    """`emulators.client` as the bench starts it, for a plan of DualPath whose front ports lie on loopback."""
    spec = read_spec(DUALPATH, ["workload.trajectories.agents=3", "workload.trajectories.turns=4"])
    run = "20260101-000000-abcdef"
    (place,) = places(list(spec.systems), {}, 1)
    plan = compile_plan(spec, place, run=run, label="abcdef", clock="wall")
    folder = tmp_path / run
    (folder / "control").mkdir(parents=True)
    (folder / "plan.json").write_bytes(write_plan(_on_loopback(plan)))
    server_run, echo = NodeRun(folder, "sched0"), Echo()
    server = TurnServer(server_run)
    server_run.attach((echo,), outside=server.carry)
    command = [sys.executable, "-m", "emulators.client", "--run", str(folder), "--node", "client0"]
    client = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for((folder / "control" / "client0.ready").exists)
        epoch = Epoch(time.monotonic_ns() + 20 * MILLISECOND, plan.dilation)
        (folder / "control" / "draft").write_bytes(msgspec.json.encode(epoch))
        (folder / "control" / "draft").rename(folder / "control" / "start.json")
        server_run.start(epoch)
        _wait_for(lambda: bool(server_run.turn()) and (folder / "control" / "client0.done").exists(), each_s=0.001)
        (folder / "control" / "stop").touch()
        assert client.wait(timeout=10) == 0
    finally:
        client.kill()
        client.communicate()
        server.close()
        server_run.finish(0)
    assert [turn.prompt_tokens for turn in echo.seen if turn.agent == 0] == [1024, 1168, 1312, 1456]
    assert len(logged(folder, "client0", "AgentFinished")) == 3
    assert not logged(folder, "client0", "LineLogged")


def _on_loopback(plan: Plan) -> Plan:
    def moved(node: NodePlan) -> NodePlan:
        address = {"client0": "127.0.0.1", "sched0": SERVER}.get(node.name)
        if address is None:
            return node
        ports = tuple(
            msgspec.structs.replace(port, address=address) if port.fabric == "front" else port for port in node.ports
        )
        return msgspec.structs.replace(node, ports=ports)

    return msgspec.structs.replace(plan, nodes=tuple(moved(node) for node in plan.nodes))


def _wait_for(condition: Callable[[], bool], each_s: float = 0.01) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(each_s)
    raise AssertionError("in 10 s it did not happen")
