"""Isolation by lanes, alone: engines that exchange tokens in bursts, and one that pushes KV into one of them.

No model, no turn: what is asked is whether the lane of KV leaves collectives undisturbed, what KV keeps, and what
happens where both share a lane (DualPath A.1; the paper has no such figure, design dualpath 1.15). Two machines: a
`Burster` an engine, which asks its collective for exchanges at moments that all members know, or all the time; a
`Pusher`, which keeps KV waiting at the traffic manager: for another node, or host-device copies for its own, on the
PCIe link that its node's collectives need (what-ifs). Both stop by themselves. The forecast of the port, which the run
is held against, is `testbed.network.port_forecast`'s; one burster logs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from random import Random
from typing import Annotated, Literal

import msgspec

from testbed.dualpath.collectives import machine_name
from testbed.dualpath.local_messages import TRAFFIC, Exchange, Exchanged, Move, Moved, Piece
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.service_levels import COLLECTIVE, KV
from testbed.events.kv_events import PortForecast
from testbed.machine import (
    NOTHING,
    Deliver,
    Effect,
    Effects,
    Emit,
    Message,
    RemoteAddress,
    UnexpectedMessage,
)
from testbed.network.host_design import Copies
from testbed.units import MILLISECOND, Nanoseconds

START = 20 * MILLISECOND
"""True time before which nothing is sent: processes that have just passed the barrier wake late."""
STAGGER = 2 * MILLISECOND
"""True time between the first wakes of members that saturate: on few cores processes that wake at once wake late."""
DRAIN = 100 * MILLISECOND
"""True time after the last collective, in which KV that is under way lands: a run that is cut has lost it."""
HOP = "de3-5-hbm"
"""The hop that the pushed KV stands for: HBM of a decode engine to HBM of a prefill engine."""
COPY_HOP = "pe3-4"
"""The hop of copies: buffer to HBM of one prefill engine."""
PAYLOAD = 4096
"""Of a full packet."""


class IsolationParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run of `kind = "lanes"` is made of. Times are true ones."""

    kv: Literal["none", "own", "same", "wrong"] = "own"
    """No KV; KV and collectives at their own service levels; KV at the collectives' level; the two levels swapped.
    Which lane a level has is the fabric's table to say."""
    load: Literal["bursts", "saturating"] = "bursts"
    """Collectives at given moments, or two at once without a pause (two micro-batches), all sent to one member."""
    members: Annotated[int, msgspec.Meta(ge=2, le=16)] = 2
    """Prefill-like nodes of one engine each, pe0, pe1, …; KV is pushed into the last one."""
    burst_packets: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """Full packets that a member sends to each other one in a collective."""
    bursts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 120
    """How many of them; where collectives saturate, of each of the two."""
    period: Annotated[Nanoseconds, msgspec.Meta(ge=1_000)] = 14 * MILLISECOND
    """Mean time from one to the next, where they do not saturate. Must be longer than a burst takes beside KV in its
    lane."""
    kv_message_packets: Annotated[int, msgspec.Meta(ge=1, le=256)] = 64
    """Packets of one WRITE of KV. Where collectives saturate it is one, so that each low packet is seen."""
    kv_messages: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """WRITEs that wait or are under way at once: more than a window, so that KV always has something to send."""
    copies: Literal["none", "cnic", "copy_engine", "nic_integrated"] = "none"
    """Host-to-device copies at the last member, as many as `kv_messages` of `kv_message_packets` at once, and how they
    go (`testbed.dualpath.parameters`)."""
    pcie_gbyte_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Each way of a CNIC's PCIe link, GB/s, in the simulated model; 0 leaves it out."""
    pcie_qos: bool = False
    """PCIe with traffic classes, as there."""

    @property
    def groups(self) -> int:
        """Groups of all members that exchange independently."""
        return 2 if self.load == "saturating" else 1

    @property
    def levels(self) -> tuple[int, int]:
        """Service levels of the queue pairs of collectives and of KV."""
        return {"same": (COLLECTIVE, COLLECTIVE), "wrong": (KV, COLLECTIVE)}.get(self.kv, (COLLECTIVE, KV))

    @property
    def copying(self) -> DualPathParameters:
        """The same choices as a traffic manager takes them."""
        way: Copies = "cnic" if self.copies == "none" else self.copies
        return DualPathParameters(copy=way, pcie_gbyte_s=self.pcie_gbyte_s, pcie_qos=self.pcie_qos)

    @property
    def packets_of_kv(self) -> int:
        """Packets of one WRITE of KV."""
        return 1 if self.load == "saturating" else self.kv_message_packets

    def end(self, packet_time: Nanoseconds) -> Nanoseconds:
        """When KV is no longer pushed: about when the last collective ends. `packet_time` is a full packet's."""
        if self.load == "bursts":
            return START + (self.bursts + 1) * self.period
        return START + self.groups * self.bursts * (self.members - 1) * self.burst_packets * packet_time


def node_names(parameters: IsolationParameters) -> tuple[list[str], str]:
    """The members' nodes, and the one that pushes KV."""
    return [f"pe{number}" for number in range(parameters.members)], "de0"


def moments(parameters: IsolationParameters, rng: Random) -> list[Nanoseconds]:
    """When bursts are due: about a period apart, never in step with anything; all at once where they saturate."""
    if parameters.load == "saturating":
        return [START] * parameters.bursts
    half = parameters.period // 2
    return [
        START + (turn + 1) * parameters.period - half // 2 + rng.randrange(half) for turn in range(parameters.bursts)
    ]


class Phase(Enum):
    """What a burster does."""

    WAITING = auto()
    """For the next moment."""
    EXCHANGING = auto()
    DRAINING = auto()
    """All collectives have ended; KV lands."""
    DONE = auto()


class Burster:
    """Asks for the collectives of one engine in one group. `due` are their moments, `forecast` is logged at the start.

    A collective begins when it is due and the one before it has ended; without a pause where all are due at once.
    """

    def __init__(
        self,
        parameters: IsolationParameters,
        place: int,
        group: int,
        due: Sequence[Nanoseconds],
        forecast: PortForecast | None = None,
    ) -> None:
        self.name = f"burster{group}"
        self.phase = Phase.WAITING
        self._parameters = parameters
        self._place = place
        self._to = machine_name(group)
        self._due = deque(due)
        self._forecast = forecast
        self._sequence = 0
        self._next: Nanoseconds = START
        if parameters.load == "saturating":
            self._next += (parameters.groups * place + group + 1) * STAGGER
        self.failed = False
        """A collective has failed: its queue pair is lost, and nothing more is asked for."""

    @property
    def done(self) -> bool:
        """All collectives have ended, and KV has had time to land."""
        return self.phase is Phase.DONE

    @property
    def ended(self) -> int:
        """Collectives that have ended."""
        return self._sequence - (self.phase is Phase.EXCHANGING)

    @property
    def remaining(self) -> int:
        """Collectives that have not."""
        return len(self._due) + (self.phase is Phase.EXCHANGING)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes the end of its collective. Raises `UnexpectedMessage` for anything else."""
        if not isinstance(message, Exchanged) or self.phase is not Phase.EXCHANGING:
            raise UnexpectedMessage(self.name, message, self.phase.name)
        if message.failure:
            self.failed = True
            self._due.clear()
        if self._due:
            self.phase, self._next = Phase.WAITING, max(now, self._due[0])
        else:
            self.phase, self._next = Phase.DRAINING, now + DRAIN
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        """Logs the forecast, begins the collective that is due, or ends."""
        effects: list[Effect] = []
        if self._forecast is not None:
            effects.append(Emit(self._forecast))
            self._forecast = None
        if self.phase is Phase.DRAINING and now >= self._next:
            self.phase = Phase.DONE
        elif self.phase is Phase.WAITING and now >= self._next and now < self._due[0]:
            self._next = self._due[0]
        elif self.phase is Phase.WAITING and now >= self._next:
            effects.append(self._begin())
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When the next collective is due, or the end."""
        return self._next if self.phase in {Phase.WAITING, Phase.DRAINING} else None

    def _begin(self) -> Deliver:
        self._due.popleft()
        self._sequence += 1
        self.phase = Phase.EXCHANGING
        exchange = Exchange(
            owner=self.name,
            ticket=self._sequence,
            operation="dispatch" if self._sequence % 2 else "combine",
            sequence=self._sequence,
            bytes_to_each=self._sizes(),
        )
        return Deliver(self._to, exchange)

    def _sizes(self) -> tuple[int, ...]:
        members, size = self._parameters.members, self._parameters.burst_packets * PAYLOAD
        if self._parameters.load == "saturating":  # to the last member alone, so that its port has more than it carries
            return tuple(size if peer == members - 1 != self._place else 0 for peer in range(members))
        return tuple(0 if peer == self._place else size for peer in range(members))


class Pusher:
    """Keeps so many moves of KV at the traffic manager until the run's collectives have ended."""

    name = "pusher"

    def __init__(
        self,
        parameters: IsolationParameters,
        *,
        peer: str,
        remote: RemoteAddress,
        room: int,
        region: str,
        until: Nanoseconds,
        hop: str = HOP,
    ) -> None:
        self._parameters = parameters
        self._until = until
        self._peer = peer
        self._remote = remote
        self._region = region
        self._hop = hop
        self._size = parameters.packets_of_kv * PAYLOAD
        self._slots = max(1, room // self._size)
        self._ticket = 0
        self._begun = False

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes the end of a move and asks for the next. Raises `UnexpectedMessage` for anything else."""
        if not isinstance(message, Moved):
            raise UnexpectedMessage(self.name, message)
        return NOTHING if message.failure or now >= self._until else (self._move(),)

    def wake(self, now: Nanoseconds) -> Effects:
        """Begins."""
        if self._begun or now < START:
            return NOTHING
        self._begun = True
        return [self._move() for _ in range(self._parameters.kv_messages)]

    def deadline(self) -> Nanoseconds | None:
        """`START` until it has begun."""
        return None if self._begun else START

    def _move(self) -> Deliver:
        self._ticket += 1
        offset = self._ticket % self._slots * self._size
        move = Move(
            owner=self.name,
            ticket=self._ticket,
            hop=self._hop,
            request="isolation",
            layer=0,
            interface="cnic0",
            peer=self._peer,
            remote=self._remote.at(offset),
            pieces=(Piece(self._region, offset, self._size),),
        )
        return Deliver(TRAFFIC, move)
