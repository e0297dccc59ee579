"""The soft RNIC: one process a node that speaks RoCEv2 for the node's software, as hardware of its own.

    python -m emulators.rnic --run RUNFOLDER --node NAME --socket PATH [--fifo 10] [--cores 1] [--spin-us 0]

It runs outside the node's container, in its network namespace, so what grinds the container's CPUs does not slow it.
It opens the queue pairs of plan.json by itself. Software connects to the unix socket, lends memory and posts verbs
(`emulators.verbs`); peers' one-sided operations touch that memory without waking the software. A region outlives the
software that lent it, until another registers it anew: a dead engine shows as silence, not as an access error.

The loop does what there is, looks for more for at most `--spin-us`, then blocks on sockets, doorbell and timers. A
queue pair's timers run in wall time: they watch the emulation's own links. Counters go to events/<node>-nic.jsonl.
At SIGHUP it takes the lane tables of control/<node>.lanes.json (`testbed.experiment.live_lanes`) and removes that
file, which is the answer.
All protocol is in testbed.network; no decisions are taken here.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from emulators.barrier import BadRunFolder, plan_of
from emulators.rnic_connections import BadPlan, connections_of, settings_of
from emulators.rnic_desk import Desk, PathTaken
from emulators.rnic_journal import Journal
from emulators.rnic_ports import Endpoint, Port
from emulators.rnic_tables import take_tables
from emulators.timers import set_timer_slack
from emulators.verbs_ring import QueueError
from emulators.wire_faults import KINDS, WireFaults
from testbed.experiment.live_lanes import tables_path
from testbed.experiment.plan import NodePlan, Plan
from testbed.machine import Completion, CompletionStatus, Verb
from testbed.network.connection import ConnectionSettings
from testbed.network.memory_region import RegionTable
from testbed.network.queue_pair import QueuePair
from testbed.units import MICROSECOND, MILLISECOND, SECOND

EXIT_BAD_INPUT, EXIT_HOST_CANNOT, EXIT_ERRORED = 2, 3, 4
TIMER_LOOK = MILLISECOND
"""How often a busy loop looks at the queue pairs' timers."""
DESK_LOOK = 10 * MILLISECOND
"""How often a loop that never sleeps looks who comes and goes at the unix socket."""
SHORTEST_SLEEP = 30 * MICROSECOND
"""Waits for the uplink's pace below this are not worth a system call."""
FEW_PORTS = 2
"""Up to so many, each is asked for packets; of more, one system call finds those that have any."""
FINE_SLEEP = 5 * MILLISECOND
"""Below this, epoll's whole milliseconds are too coarse: select waits for it."""


class Rnic:
    """The NIC of one node: ports, queue pairs, regions, and the software that is connected, if any."""

    def __init__(
        self,
        plan: Plan,
        node: NodePlan,
        path: Path,
        journal: Journal,
        *,
        spin_ns: int = 0,
        faults: WireFaults | None = None,
        settings: ConnectionSettings | None = None,
    ) -> None:
        """Opens everything. Raises OSError for an address or port that cannot be had, `PathTaken`, `BadPlan`."""
        self.regions = RegionTable()
        self.journal = journal
        self.stopping = False
        self._asked = False
        """Whether there may be other lane tables to be taken."""
        self._spin_ns = spin_ns
        self._tables = tables_path(journal.folder, node.name)
        self.ports: Sequence[Port] = ()
        """The node's RoCE ports."""
        self._readable: Sequence[Port] = ()
        """Ports that may have a packet: after a sleep those that `select` named, else all."""
        self._endpoints: dict[int, Endpoint] = {}
        self._touched: list[Endpoint] = []
        self._unanswered: set[Endpoint] = set()
        """Queue pairs with verbs that have no completion yet: only their timers can run."""
        self._timers_looked_at = self._desk_looked_at = 0
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waits = select.epoll()
        self._waits.register(self._wake_fd, select.EPOLLIN)
        connections = connections_of(plan, node)
        fabrics = {fabric.name: fabric for fabric in plan.fabrics if fabric.roce}
        self.ports = [Port(port, fabrics[port.fabric], faults) for port in node.ports if port.fabric in fabrics]
        self._readable = self.ports
        self._port_of = {port.socket.fileno(): port for port in self.ports}
        self._arrivals = select.epoll()
        for descriptor in self._port_of:
            self._waits.register(descriptor, select.EPOLLIN)
            self._arrivals.register(descriptor, select.EPOLLIN)
        ports = {port.plan.interface: port for port in self.ports}
        for interface, connection in connections:
            pair = QueuePair(connection, self.regions, settings or settings_of(plan))
            pair.connect()
            self._endpoints[pair.number] = ports[interface].add(pair)
        self.desk = Desk(path, node, self.regions, journal, self._waits, self.reconnect)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The node's queue pairs, in order of the plan."""
        return tuple(self._endpoints.values())

    # --- what software posts (rnic_software.QueuePairs) ---

    def post(self, queue_pair: int, verb: Verb, sink: memoryview | None) -> bool:
        """Posts to the queue pair of that number; False if there is none."""
        endpoint = self._endpoints.get(queue_pair)
        if endpoint is None:
            return False
        endpoint.pair.post(verb, sink)
        if not endpoint.touched:
            self._touch(endpoint)
        return True

    def post_receive(self, queue_pair: int, capacity: int, held: int) -> bool:
        """Makes room for one SEND beside `held` others; room that a dead software left is used first."""
        endpoint = self._endpoints.get(queue_pair)
        if endpoint is None:
            return False
        if endpoint.pair.receives <= held:
            endpoint.pair.post_receive(capacity)
        return True

    def reconnect(self, queue_pair: int, turn: int) -> str:
        """Takes a queue pair from any state to its connection number `turn`; why it does not, or nothing.

        What was posted before is flushed; room that the software has lent for SENDs is there again.
        """
        endpoint, software = self._endpoints.get(queue_pair), self.desk.software
        if endpoint is None:
            return f"there is no queue pair {queue_pair:#x}"
        pair = endpoint.pair
        if turn <= pair.turn:
            return f"queue pair {queue_pair:#x} is at connection {pair.turn}, which is not before {turn}"
        while software is not None and software.take_requests(self):
            pass
        pair.reconnect(turn - pair.turn)
        if not endpoint.touched:
            self._touch(endpoint)
        self._settle()
        for length in software.lent(queue_pair) if software is not None else ():
            pair.post_receive(length)
        self.journal.say(f"queue pair {queue_pair:#x} to {pair.connection.peer} is at connection {turn}")
        return ""

    # --- the loop ---

    def run(self) -> None:
        """Works until `stop`."""
        clock = time.monotonic_ns
        busy_until = 0
        while not self.stopping:
            now = clock()
            if self.turn(now):
                busy_until = now + self._spin_ns
            if now >= busy_until:
                self._block(now)
        self.journal.measure(self)

    def turn(self, now: int) -> bool:
        """Does what there is to do; True if there was anything."""
        work = 0
        if self._asked:
            self._take_tables()
        for port in self._readable:
            work += port.receive(now, self._touch)
        self._readable = self.ports if len(self.ports) <= FEW_PORTS else self._with_packets()
        software = self.desk.software
        if software is not None and software.has_posted():
            try:
                work += software.take_requests(self)
            except QueueError as error:
                self.desk.dismiss(str(error))
                software = None
        if now - self._timers_looked_at >= TIMER_LOOK:
            self._look_at_timers(now)
        if now - self._desk_looked_at >= DESK_LOOK:
            self._desk_looked_at = now
            self.desk.awake([descriptor for descriptor, _ in self._waits.poll(0)])
        if self._touched:
            self._settle()
        for port in self.ports:
            if port.waits:
                work += port.transmit(time.monotonic_ns)
        if software is not None:
            software.publish()
        if self.journal.due(now):
            self.journal.beat(now, self)
            for port in self.ports:
                if port.has_gone():
                    self._port_of = {one.socket.fileno(): one for one in self.ports if one.is_open}
                    self.journal.say(f"interface {port.plan.interface} has gone: its port is closed", "warning")
        return work > 0

    def _with_packets(self) -> list[Port]:
        """Ports that have a packet, by one system call for all."""
        return [self._port_of[descriptor] for descriptor, _ in self._arrivals.poll(0)]

    def ask(self) -> None:
        """Has lane tables that lie in control/ taken; may be called from a signal handler."""
        self._asked = True
        os.eventfd_write(self._wake_fd, 1)

    def _take_tables(self) -> None:
        self._asked = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        take_tables(self._tables, self.ports, self.journal)

    def stop(self) -> None:
        """Ends `run`; may be called from a signal handler."""
        self.stopping = True
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Closes sockets and queues and removes the unix socket."""
        self.desk.close()
        for port in self.ports:
            port.close()
        self._waits.close()
        self._arrivals.close()
        os.close(self._wake_fd)

    def _touch(self, endpoint: Endpoint) -> None:
        endpoint.touched = True
        self._touched.append(endpoint)

    def _settle(self) -> None:
        """Looks at each queue pair that was posted to, received from or woken: completions, and whether it sends."""
        software = self.desk.software
        for endpoint in self._touched:
            endpoint.touched = False
            pair = endpoint.pair
            completions = pair.poll_completions()
            received = pair.poll_received()
            if completions and completions[-1].status is not CompletionStatus.SUCCESS:
                self._report(pair, completions)
            if software is not None:
                try:
                    for completion in completions:
                        software.complete(pair.number, completion)
                    for message in received:
                        software.receive(pair.number, message.data)
                except QueueError as error:
                    self.desk.dismiss(str(error))
                    software = None
            if pair.outstanding:
                self._unanswered.add(endpoint)
            endpoint.port.activate(endpoint)
        self._touched.clear()

    def _report(self, pair: QueuePair, completions: Sequence[Completion]) -> None:
        """Names the peer and its address when a connection fails (a wrong one is seen here first)."""
        end = pair.connection
        for completion in completions:
            if completion.status not in (CompletionStatus.SUCCESS, CompletionStatus.FLUSHED):
                where = f"queue pair {pair.number:#x} to {end.peer} at {end.peer_address}"
                self.journal.say(f"{where} failed: {completion.status.name}", "warning")

    def _look_at_timers(self, now: int) -> int | None:
        """Wakes queue pairs whose timers are due; the moment of the next one."""
        self._timers_looked_at = now
        earliest: int | None = None
        for endpoint in tuple(self._unanswered):
            deadline = endpoint.pair.deadline()
            if deadline is not None and deadline <= now:
                endpoint.pair.wake(now)
                if not endpoint.touched:
                    self._touch(endpoint)
                deadline = endpoint.pair.deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
            if not endpoint.pair.outstanding:
                self._unanswered.discard(endpoint)
        return earliest

    def _block(self, now: int) -> None:
        """Sleeps until a packet, a doorbell, somebody at the unix socket, a timer, the pace or the journal's beat."""
        if self.stopping or self._asked:
            return
        until = self.journal.next_beat
        timer = self._look_at_timers(now)
        if self._touched:
            return
        if timer is not None and timer < until:
            until = timer
        for port in self.ports:
            if port.waits and port.backlogged() and port.wake_at() < until:
                until = port.wake_at()
        rest = until - time.monotonic_ns()
        if rest < SHORTEST_SLEEP or not self.desk.prepare_sleep():
            return
        if rest < FINE_SLEEP:
            select.select((self._waits,), (), (), rest / SECOND)
            rest = 0
        readable = [descriptor for descriptor, _ in self._waits.poll(rest / SECOND)]
        self._readable = [self._port_of[descriptor] for descriptor in readable if descriptor in self._port_of]
        self._desk_looked_at = time.monotonic_ns()
        self.desk.awake(readable)


def main(arguments: Sequence[str] | None = None) -> int:
    """The NIC's whole life; returns the exit code."""
    options = _arguments(arguments)
    try:
        plan, node = plan_of(options.run, options.node)
        faults = WireFaults(**{kind: getattr(options, kind) for kind in KINDS}, seed=options.fault_seed)
    except (BadRunFolder, ValueError) as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    journal = Journal(options.run, node.name)
    try:
        remarks = _become_hardware(options.fifo, options.cores)
        spin_us = options.spin_us if options.spin_us >= 0 else _spin_us()
        rnic = Rnic(plan, node, options.socket, journal, spin_ns=spin_us * MICROSECOND, faults=faults)
    except (OSError, PathTaken, BadPlan) as error:
        code = EXIT_BAD_INPUT if isinstance(error, BadPlan) else EXIT_HOST_CANNOT
        print(f"{node.name}: the soft RNIC cannot start: {error}", file=sys.stderr)
        journal.close(code, str(error))
        return code
    for remark in remarks:
        journal.say(remark, "warning")

    def stop(_number: int, _frame: FrameType | None) -> None:
        rnic.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, lambda _number, _frame: rnic.ask())
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    code, detail = 0, ""
    try:
        rnic.run()
    except Exception as error:  # noqa: BLE001  # whatever it was, the log must have it
        traceback.print_exc()
        journal.say("".join(traceback.format_exception(error)), "error")
        code, detail = EXIT_ERRORED, f"{type(error).__name__}: {error}"
    rnic.close()
    journal.close(code, detail)
    return code


def _become_hardware(priority: int, cores: Sequence[int]) -> list[str]:
    """Pins the process and makes it SCHED_FIFO where the host permits; remarks on what it did not permit."""
    remarks = []
    set_timer_slack()
    if cores:
        os.sched_setaffinity(0, cores)
    if priority:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        except PermissionError as error:
            remarks.append(f"the soft RNIC runs without SCHED_FIFO: {error.strerror}")
    return remarks


def _spin_us() -> int:
    """50 µs, where peers and software can run meanwhile; on few cores a spinning NIC only keeps them waiting."""
    return 50 if len(os.sched_getaffinity(0)) > 1 and (os.cpu_count() or 1) >= 4 else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="emulators.rnic", description="The soft RNIC of one emulated node.")
    parser.add_argument("--run", type=Path, required=True, metavar="RUNFOLDER", help="folder of the run")
    parser.add_argument("--node", required=True, metavar="NAME", help="name of the node in plan.json")
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH", help="unix socket for the software")
    parser.add_argument("--fifo", type=int, default=0, metavar="PRIORITY", help="SCHED_FIFO priority, 0: ordinary")
    parser.add_argument("--cores", type=_cores, default=(), metavar="LIST", help="cores to run on, as 1 or 2,3")
    parser.add_argument("--spin-us", type=int, default=-1, metavar="N", help="look for more so long before blocking")
    for fault in KINDS:
        parser.add_argument(f"--{fault}", type=float, default=0.0, metavar="P", help=f"probability to {fault} a packet")
    parser.add_argument("--fault-seed", type=int, default=1, metavar="N", help="seed of the faults")
    return parser.parse_args(arguments)


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
