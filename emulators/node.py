"""An emulated node's software on the wall clock: plan, log, NIC, barrier, and a loop that wakes machines on time.

Most nodes have a whole life in `emulators.node_life`, those that speak HTTP in `emulators.http_node`. Either takes a
`NodeRun` through the same steps:

    run = NodeRun(folder, name)      plan, log
    run.connect()                    NIC and regions → run.memories (nothing for nodes without queue pairs)
    run.attach(machines, accelerator, outside=…)
    run.announce(); run.start(run.look_for_epoch())        barrier: <node>.ready, then start.json
    moment = run.turn()              all that is due; returns the monotonic reading of the next turn it wants
    run.deliver(to, message)         a message from outside for one machine; changes when the next turn is due
    run.finish(code)

`run.now()` is true time: (monotonic - epoch) / dilation, and 0 until the epoch. No decisions are taken here.
"""

from __future__ import annotations

import gc
import os
import select
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from emulators.barrier import Barrier, plan_of
from emulators.rdma_library import load
from emulators.rdma_verbs import RdmaVerbs
from emulators.shared_memory import SharedMemory
from emulators.verbs import Verbs, room_for
from testbed.clocks.node_host import Accelerator, NodeHost
from testbed.clocks.wall import Beat, Epoch, Lateness, RoundTrips, WallTime
from testbed.events.fidelity_events import ClockLate, HardwareEngaged
from testbed.events.log import EventWriter
from testbed.events.run_events import LineLogged, NodeHeartbeat, NodeReady, NodeStopped
from testbed.machine import Completion, CompletionStatus, Deliver, Event, Machine, MachineError, Message, Verb
from testbed.network.connection import ConnectionSettings
from testbed.units import MICROSECOND, MILLISECOND, SECOND, Nanoseconds

NIC_SOCKET_VARIABLE = "LOOPLANE_NIC_SOCKET"
HEARTBEAT = 100 * MILLISECOND
FLUSH = 20 * MILLISECOND
MEASURE = SECOND
SPIN = 50 * MICROSECOND
"""Wall time before a machine's deadline from which the loop spins: a sleep wakes 30 to 100 µs late (platform.md §5)."""


class NodeRun:
    """One node's part in one run, or one process's of a node that has several. Not for several threads."""

    spin = SPIN

    def __init__(self, folder: Path, name: str, process: str = "") -> None:
        self.folder = folder
        self.name = name
        self.process = process
        """Name of a process that is not the node's first (`NodePlan.processes`); empty for that."""
        self.log_name = f"{name}-{process}" if process else name
        """What its log and its files in `control/` are called after."""
        self.plan, self.node = plan_of(folder, name)
        self.stopping = False
        """True once `control/stop` was seen or `stop()` was called."""
        self.marked_done = False
        """True once `mark_done` was called."""
        self._barrier = Barrier(folder, self.log_name)
        # A node that was started again while the run goes on is in the run's time from its first line.
        epoch = self.look_for_epoch()
        self._wall: WallTime | None = None if epoch is None else WallTime(epoch)
        self.writer = EventWriter(folder / "events" / f"{self.log_name}.jsonl", self.log_name)
        self.memories: dict[str, SharedMemory] = {}
        self.verbs: Verbs | RdmaVerbs | None = None
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable after `stop()`: breaks a sleep, also from a signal handler."""
        self._host: NodeHost | None = None
        self._mailbox: str | None = None
        self._watched: list[int] = []
        self._attend: list[Callable[[], None]] = []
        self._lateness = Lateness()
        self._round_trips = RoundTrips()
        self._machine_due: int | None = None
        self._nic_was_lost = False
        self._flushed = self.writer.seq
        now = time.monotonic_ns()
        self._heartbeat, self._flush, self._measure = Beat(HEARTBEAT, now), Beat(FLUSH, now), Beat(MEASURE, now)

    def connect(self) -> None:
        """Connects to the node's RNIC, which is a soft one unless the plan names a device, and registers the plan's
        regions. Raises `VerbsError`.
        """
        if not (self.node.queue_pairs or self.node.regions):
            return
        planned = self.plan.hardware.rnics.get(self.name)
        verbs: Verbs | RdmaVerbs
        receives, sizes = room_for(self.node)
        if planned is None:
            path = os.environ.get(NIC_SOCKET_VARIABLE) or f"/run/looplane/{self.plan.label}/{self.name}.nic"
            verbs = Verbs.connect(Path(path), self.node, sizes=sizes, receives=receives)
        else:
            settings = ConnectionSettings(path_mtu=self.plan.path_mtu)
            verbs = RdmaVerbs(load(), planned, self.node, settings, sizes=sizes, receives=receives)
            self.emit(HardwareEngaged("rnic", self.name, planned.device, verbs.facts))
        self.verbs = verbs
        for region in self.node.regions:
            self.memories[region.name] = verbs.register(region, populate=not region.bulk)
        if isinstance(verbs, RdmaVerbs):
            verbs.join(self.folder / "control")

    def attach(
        self,
        machines: Iterable[Machine],
        accelerator: Accelerator | None = None,
        *,
        outside: Callable[[Nanoseconds, Deliver], None] | None = None,
        mailbox: str | None = None,
    ) -> NodeHost:
        """The node's machines. `outside` takes messages for names that are no machine here; `mailbox` names the
        machine that takes SENDs of peers (by default the first).
        """
        host = NodeHost(
            self.name,
            machines,
            post=self._post,
            emit=self.writer.write,
            outside=outside or self._nobody,
            accelerator=accelerator,
        )
        self._host = host
        self._mailbox = mailbox or next(iter(host.machines), None)
        return host

    def watch(self, fd: int, attend: Callable[[], None] | None = None) -> None:
        """Also takes a turn whenever `fd` is readable: a real device's, whose answers have no deadline, or a
        connection's. `attend` is called in every turn, after the machines were woken; it may `deliver`.
        """
        self._watched.append(fd)
        if attend is not None:
            self._attend.append(attend)

    @property
    def watched(self) -> Sequence[int]:
        """The descriptors of `watch`, in order."""
        return self._watched

    # --- the barrier ---

    def announce(self) -> None:
        """Says that this node waits at the barrier: `control/<node>.ready` and node.ready."""
        self.emit(NodeReady(role=self.node.role, pid=os.getpid()))
        self.writer.flush()
        self._barrier.announce()

    def look_for_epoch(self) -> Epoch | None:
        """The barrier's file, or None while it is closed. Notices `stop`. Raises `BadRunFolder`."""
        epoch = self._barrier.epoch()
        if epoch is None and self._barrier.stopped():
            self.stopping = True
        return epoch

    def start(self, epoch: Epoch) -> None:
        """The barrier has opened: true time runs from now on, and everything made until now is kept out of the
        garbage collector's way.
        """
        self._wall = WallTime(epoch)
        gc.collect()
        gc.freeze()
        self._plan_next(time.monotonic_ns())

    # --- running ---

    def now(self) -> Nanoseconds:
        """True time; 0 until the epoch."""
        return self._true(time.monotonic_ns())

    def emit(self, event: Event) -> None:
        """Logs an event that happens now."""
        self.writer.write(self.now(), event)

    def deliver(self, to: str, message: Message) -> None:
        """Hands a message from outside to the machine `to`; its effects are carried out before this returns."""
        reading = time.monotonic_ns()
        self._attached().deliver(self._true(reading), to, message)
        if self.verbs is not None:
            self.verbs.ring_doorbell()
        self._plan_next(reading)

    def turn(self) -> int:
        """Does all that is due and returns the monotonic reading at which the next turn is due.

        Between turns the caller sleeps until then, until `verbs.completion_fd` or until `wake_fd` (`prepare_sleep`
        first). After the barrier only.
        """
        host = self._attached()
        reading = time.monotonic_ns()
        now = self._true(reading)
        due = self._machine_due
        if due is not None and due <= reading:
            self._lateness.add(reading - due)
        verbs = self.verbs
        if verbs is not None:
            for message in verbs.poll():
                if isinstance(message, Completion):
                    self._round_trips.complete(reading, good=message.status is CompletionStatus.SUCCESS)
                    host.complete(now, message)
                else:
                    host.deliver(now, self._mailbox or "", message)
        # The bench sets the epoch a little ahead: until then nothing of the run is due.
        if self._wall is not None and reading >= self._wall.epoch:
            host.wake(now)
        for attend in self._attend:
            attend()
            # What it delivered has happened later than this turn began.
            reading = time.monotonic_ns()
            now = self._true(reading)
        if verbs is not None:
            verbs.ring_doorbell()
        self._beat(reading, now)
        self._plan_next(reading)
        return self.next_turn()

    def next_turn(self) -> int:
        """The monotonic reading at which the next turn is due, as things stand."""
        moment = self._heartbeat.next
        if self.writer.seq != self._flushed and self._flush.next < moment:
            moment = self._flush.next
        if self._machine_due is not None and self._machine_due < moment:
            moment = self._machine_due
        return moment

    def prepare_sleep(self) -> bool:
        """Asks to be woken through `verbs.completion_fd`. False: something has completed already, take a turn."""
        return self.verbs is None or self.verbs.arm()

    def loop(self) -> None:
        """Turns until the run stops: sleeps in select, spins for the last `spin` before a machine's deadline."""
        descriptors = [self.wake_fd, *self._watched]
        if self.verbs is not None:
            descriptors.append(self.verbs.completion_fd)
        clock = time.monotonic_ns
        while not self.stopping:
            moment = self.turn()
            spin = self.spin if moment == self._machine_due else 0
            if not self.prepare_sleep():
                continue
            rest = moment - spin - clock()
            if rest > 0 and select.select(descriptors, (), (), rest / SECOND)[0]:
                continue
            waiting = self.verbs.waiting if self.verbs is not None else _never
            while clock() < moment and not waiting():
                pass

    # --- the end ---

    def stop(self) -> None:
        """Ends the loop at its next turn; may be called from a signal handler."""
        self.stopping = True
        os.eventfd_write(self.wake_fd, 1)

    def mark_done(self) -> None:
        """The node's workload has ended: `control/<node>.done`."""
        self.marked_done = True
        self._barrier.done()

    def record_crash(self, error: BaseException) -> None:
        """Puts the traceback of a crash into the node's log."""
        self.emit(LineLogged(text="".join(traceback.format_exception(error)), severity="error"))

    def finish(self, code: int, detail: str = "") -> None:
        """Logs node.stopped and lets go of the NIC and the log."""
        self.emit(self._lateness.measured())
        for measured in self._round_trips.measured():
            self.emit(measured)
        self.emit(NodeStopped(code=code, detail=detail))
        if self.verbs is not None:
            self.verbs.close()
        self.writer.close()
        os.close(self.wake_fd)

    # --- inside ---

    def _true(self, reading: int) -> Nanoseconds:
        return 0 if self._wall is None else max(0, self._wall.true(reading))

    def _attached(self) -> NodeHost:
        if self._host is None:
            raise MachineError(f"{self.name} has no machines yet")
        return self._host

    def _post(self, now: Nanoseconds, verb: Verb) -> None:
        if self.verbs is None:
            raise MachineError(f"{self.name} has no NIC for {type(verb).__name__} at {now}")
        self._round_trips.post(verb, time.monotonic_ns())
        self.verbs.post(verb, more=True)

    def _nobody(self, now: Nanoseconds, deliver: Deliver) -> None:
        raise MachineError(f"{self.name} has nobody called {deliver.to!r} at {now}")

    def _plan_next(self, reading: int) -> None:
        """Notes the next machine's deadline; one that is past already is due from `reading` on, and not late."""
        due = self._host.deadline() if self._host is not None else None
        self._machine_due = None if due is None or self._wall is None else max(self._wall.monotonic(due), reading)

    def _beat(self, reading: int, now: Nanoseconds) -> None:
        if self._measure.due(reading):
            self.writer.write(now, self._lateness.measured())
            for measured in self._round_trips.measured():
                self.writer.write(now, measured)
        if self._heartbeat.due(reading):
            late = self._lateness.late()
            if late is not None:
                self.writer.write(now, ClockLate(lateness=late))
            self._look_for_nic(now)
            self.writer.write(now, NodeHeartbeat())
            self._flush.next = reading
            if self._barrier.stopped():
                self.stopping = True
        if self._flush.due(reading) and self.writer.seq != self._flushed:
            self.writer.flush()
            self._flushed = self.writer.seq

    def _look_for_nic(self, now: Nanoseconds) -> None:
        if self.verbs is not None and self.verbs.lost and not self._nic_was_lost:
            self._nic_was_lost = True
            kind = "soft" if isinstance(self.verbs, Verbs) else "real"
            self.writer.write(now, LineLogged(text=f"{self.name}: the {kind} RNIC is gone", severity="error"))


def _never() -> bool:
    return False
