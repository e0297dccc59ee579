"""A whole server in one process, for users without root: the plan's machines, a modelled wire, and the real API.

`python -m emulators.in_process --run RUNFOLDER [--address A] [--port P]`. It is `looplane serve FILE --on sim`: the
same front end, scheduler and device as on Mininet, but RDMA is the fluid model of `testbed.network.wires` and the
front network is the loopback that HTTP comes over. Machines are kept at the pace of the wall clock times dilation;
between two looks at the clock they run from moment to moment in exact true time, so what they log does not depend
on how late the process was. It says so where it could not keep up.

Files: `control/serve.json` has the URL once requests are served, `control/stop` or SIGTERM ends it, events/ has the
nodes' logs as in every run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from emulators.openai_api import listen, make_application
from emulators.server_port import FrontEndPort
from emulators.serving_side import model_card
from emulators.timers import DeadlineTimer
from testbed.clocks.node_host import NodeHost
from testbed.clocks.pcie import split_address
from testbed.clocks.wall import Beat, Epoch, Lateness, WallTime
from testbed.events.fidelity_events import ClockLate
from testbed.events.log import EventWriter
from testbed.events.run_events import (
    LineLogged,
    NodeHeartbeat,
    NodeReady,
    NodeStopped,
    RunFinished,
    RunStarted,
    StageEntered,
)
from testbed.experiment.assembly import SYSTEMS, assemble_node, provisions_of
from testbed.experiment.outlines import Surroundings
from testbed.experiment.plan import NodePlan, Plan, read_plan
from testbed.experiment.simulation import BENCH, make_links, make_wire
from testbed.machine import Completion, Deliver, Event, MachineError, Message
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.serving.requests import Refused, Tokens
from testbed.serving.text_model import bundled_text
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary
from testbed.units import MILLISECOND, SECOND, Nanoseconds

HEARTBEAT = 100 * MILLISECOND
FLUSH = 20 * MILLISECOND
MEASURE = SECOND
TURN_LIMIT = 5 * MILLISECOND
"""Wall time after which a turn lets HTTP have the core, even if machines are behind."""


class OneProcess:
    """The machines of all nodes but the clients', on one wire, told by the caller what time it is."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary, writers: Mapping[str, EventWriter], port: FrontEndPort):
        self.now: Nanoseconds = 0
        """True time up to which everything has happened."""
        self._port = port
        self._server, self._machine = SYSTEMS[plan.kind].server
        nodes = [node for node in plan.nodes if node.role != "client"]
        memories = _memories(nodes)
        self._wire = make_wire(plan, memories)
        self._links = make_links(plan)
        self._hosts: dict[str, NodeHost] = {}
        for node in nodes:
            own = {region: memory for (owner, region), memory in memories.items() if owner == node.name}
            assembly = assemble_node(plan, node.name, Surroundings(own, vocabulary))
            self._hosts[node.name] = NodeHost(
                node.name,
                assembly.machines,
                post=lambda now, verb, name=node.name: self._wire.post(now, name, verb),  # type: ignore[misc]
                emit=writers[node.name].write,
                outside=lambda now, deliver, name=node.name: self._outside(now, name, deliver),  # type: ignore[misc]
                accelerator=assembly.accelerator,
            )

    def deliver(self, message: Message) -> None:
        """Hands a client's message to the machine that serves, at the present moment."""
        self._hosts[self._server].deliver(self.now, self._machine, message)

    def next(self) -> Nanoseconds | None:
        """When something is due next."""
        moments = [host.deadline() for host in self._hosts.values()]
        moments += (self._wire.deadline(), self._links.deadline())
        return min((moment for moment in moments if moment is not None), default=None)

    def advance(self, to: Nanoseconds, until_monotonic: int) -> bool:
        """Does all that is due up to `to`, moment by moment; False if `until_monotonic` came first."""
        while (moment := self.next()) is not None and moment <= to:
            self.now = max(self.now, moment)
            self._step()
            if time.monotonic_ns() > until_monotonic:
                return False
        self.now = max(self.now, to)
        return True

    def _step(self) -> None:
        for node, message in self._wire.wake(self.now):
            host = self._hosts[node]
            if isinstance(message, Completion):
                host.complete(self.now, message)
            else:
                host.deliver(self.now, next(iter(host.machines)), message)
        for node, machine, message in self._links.wake(self.now):
            self._hosts[node].deliver(self.now, machine, message)
        for host in self._hosts.values():
            deadline = host.deadline()
            if deadline is not None and deadline <= self.now:
                host.wake(self.now)

    def _outside(self, now: Nanoseconds, node: str, deliver: Deliver) -> None:
        if far := split_address(deliver.to):
            self._links.send(now, node, far, deliver.message)
            return
        if not isinstance(deliver.message, Tokens | Refused):
            raise MachineError(f"at {now}: the API cannot take a {type(deliver.message).__name__}")
        self._port.take(deliver.message)


def _memories(nodes: Sequence[NodePlan]) -> dict[tuple[str, str], LocalMemory]:
    return {(node.name, region.name): PlainMemory(region.size) for node in nodes for region in node.regions}


class PacedServer:
    """Keeps `OneProcess` at the wall clock's pace inside an asyncio loop, and its logs written."""

    def __init__(self, plan: Plan, folder: Path, vocabulary: Vocabulary) -> None:
        self._folder = folder
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._names = [*(node.name for node in plan.nodes if node.role != "client"), BENCH]
        self._writers = {name: EventWriter(folder / "events" / f"{name}.jsonl", name) for name in self._names}
        self.port = FrontEndPort(model_card(plan), vocabulary, self._deliver)
        self._process = OneProcess(plan, vocabulary, self._writers, self.port)
        self._timer = DeadlineTimer()
        self._lateness = Lateness()
        self._wall: WallTime | None = None
        self._due: int | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        """The host provisions, time begins, requests may come."""
        for node in self._plan.nodes:
            if node.name in self._writers:
                self._emit(node.name, NodeReady(role=node.role, pid=os.getpid()))
            if node.role == "host":
                self._emit(node.name, provisions_of(self._plan))
        reading = time.monotonic_ns()
        self._wall = WallTime(Epoch(reading, self._plan.dilation))
        self._heartbeat, self._flush = Beat(HEARTBEAT, reading), Beat(FLUSH, reading)
        self._measure = Beat(MEASURE, reading)
        self._emit(BENCH, _started(self._plan))
        self._emit(BENCH, StageEntered("running"))
        self._loop.add_reader(self._timer.fileno(), self._turn)
        self.port.open()
        self._turn()

    def stop(self) -> None:
        """Ends the run at the next turn."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Answers what is open, ends the logs."""
        self.port.close()
        self._loop.remove_reader(self._timer.fileno())
        self._timer.close()
        error = self.ended.exception() if self.ended.done() else None
        for name in self._names[:-1]:
            self._emit(name, NodeStopped(code=0))
        if error is not None:
            self._emit(BENCH, LineLogged("".join(traceback.format_exception(error)), severity="error"))
        detail = "" if error is None else f"{type(error).__name__}: {error}"
        self._emit(BENCH, RunFinished("passed" if error is None else "errored", detail))
        for writer in self._writers.values():
            writer.close()

    def _deliver(self, message: Message) -> None:
        try:
            self._catch_up()
            self._process.deliver(message)
            self._rearm()
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """A machine has failed: nothing that it holds can be relied on, so the run ends."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _turn(self) -> None:
        if self.ended.done():
            return
        try:
            self._timer.clear()
            self._catch_up()
            self._beat()
            self._rearm()
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits the end
            self._fail(error)

    def _catch_up(self) -> None:
        wall = self._wall
        if wall is None:
            raise MachineError("nothing can be delivered before the start")
        reading = time.monotonic_ns()
        if self._due is not None and self._due <= reading:
            self._lateness.add(reading - self._due)
        self._process.advance(wall.true(reading), reading + TURN_LIMIT)

    def _rearm(self) -> None:
        moment = self._process.next()
        wall = self._wall
        self._due = None if moment is None or wall is None else wall.monotonic(moment)
        beats = min(self._heartbeat.next, self._flush.next)
        self._timer.set(beats if self._due is None else min(beats, self._due))

    def _beat(self) -> None:
        reading = time.monotonic_ns()
        if self._measure.due(reading):
            self._emit(self._names[0], self._lateness.measured())
        if self._heartbeat.due(reading):
            if (late := self._lateness.late()) is not None:
                self._emit(self._names[0], ClockLate(lateness=late))
            for name in self._names:
                self._emit(name, NodeHeartbeat())
            if (self._folder / "control" / "stop").exists():
                self.stop()
        if self._flush.due(reading):
            for writer in self._writers.values():
                writer.flush()

    def _emit(self, name: str, event: Event) -> None:
        self._writers[name].write(self._process.now, event)


def _started(plan: Plan) -> RunStarted:
    return RunStarted(
        system=plan.system, clock=plan.clock, dilation=plan.dilation, byte_scale=plan.byte_scale, seed=plan.seed,
        requests=0,
    )  # fmt: skip


async def serve(folder: Path, plan: Plan, address: str, port: int) -> None:
    """Serves until the run is stopped. Raises OSError if the address cannot be bound."""
    server = PacedServer(plan, folder, deepseek_vocabulary(seen=bundled_text()))
    application = make_application(server.port, dilation=plan.dilation)
    runner, bound = await listen(application, address, port)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        server.start()
        _say(folder, address, bound)
        await server.ended
    finally:
        server.close()
        await runner.cleanup()


def _say(folder: Path, address: str, port: int) -> None:
    path = folder / "control" / "serve.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(".serve.json")
    draft.write_bytes(msgspec.json.encode({"base_url": f"http://{address}:{port}/v1"}) + b"\n")
    draft.rename(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a normal end, 2 for a run folder or an address that cannot be used."""
    parser = argparse.ArgumentParser(description="Serves a plan's system in one process.")
    parser.add_argument("--run", type=Path, required=True, metavar="RUNFOLDER", help="folder of the run")
    parser.add_argument("--address", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to listen at (default: the kernel chooses)")
    options = parser.parse_args(arguments)
    try:
        plan = read_plan((options.run / "plan.json").read_bytes())
        asyncio.run(serve(options.run, plan, options.address, options.port))
    except (msgspec.MsgspecError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
