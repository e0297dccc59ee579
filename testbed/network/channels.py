"""Channels: messages of one direction of a queue pair, one after another, each a fluid transfer.

Knows bytes, ports and time; no verbs, no memory. Rates come from `testbed.network.fluid`; they change only when a
transfer starts or ends, and only for transfers that share ports with it, directly or through others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import count

from testbed.network.appointments import Action, Appointments
from testbed.network.fluid import FluidPort, Transfer, connected, share
from testbed.units import Nanoseconds


class Channel:
    """A direction of a queue pair: where its bytes flow, what waits, and what flows now."""

    __slots__ = ("closed", "flowing", "lane", "ports", "then", "waiting")

    def __init__(self, ports: tuple[FluidPort, ...], lane: int) -> None:
        self.ports = ports
        self.lane = lane
        self.waiting: deque[tuple[int, Action, tuple[FluidPort, ...]]] = deque()
        self.flowing: Transfer | None = None
        self.then: Action | None = None
        self.closed = False


class Channels:
    """All transfers of a wire. `frame_bytes` is the frame of a full packet, the grain of a low lane's floor."""

    def __init__(self, appointments: Appointments, frame_bytes: int) -> None:
        self._appointments = appointments
        self._frame_bytes = frame_bytes
        self._numbers = count()
        self.started = 0
        """Transfers that have been started."""

    def send(
        self,
        now: Nanoseconds,
        channel: Channel,
        size_bytes: int,
        then: Action,
        through: tuple[FluidPort, ...] = (),
    ) -> None:
        """Queues a message; `then` happens when its last bit has flowed. No bytes: as soon as its turn comes.

        `through` are resources that this message crosses besides the channel's ports.
        """
        if channel.closed:
            return
        channel.waiting.append((size_bytes, then, through))
        if channel.flowing is None:
            self._next(now, channel)

    def close(self, now: Nanoseconds, channel: Channel) -> None:
        """Forgets what waits and flows; nothing more is taken."""
        channel.closed = True
        channel.waiting.clear()
        if channel.flowing is not None:
            self._remove(now, channel)

    def _next(self, now: Nanoseconds, channel: Channel) -> None:
        while channel.waiting and channel.flowing is None:
            size_bytes, then, through = channel.waiting.popleft()
            if size_bytes == 0:
                then(now)
                continue
            self.started += 1
            transfer = Transfer(next(self._numbers), size_bytes, channel.lane, channel.ports + through, now)
            channel.flowing, channel.then = transfer, then
            transfer.ended = partial(self._ended, channel)
            for port in transfer.ports:
                port.enter(transfer)
            self._share(now, [port for port in transfer.ports if port.binds])

    def _remove(self, now: Nanoseconds, channel: Channel) -> None:
        transfer = channel.flowing
        assert transfer is not None
        # Memory that was full until now and no longer is frees those that it held back.
        freed = [port for port in transfer.ports if port.binds]
        for port in transfer.ports:
            port.leave(transfer)
        transfer.version += 1
        channel.flowing = None
        self._share(now, freed)

    def _share(self, now: Nanoseconds, ports: Sequence[FluidPort]) -> None:
        transfers = connected(ports)
        for transfer, rate in zip(transfers, share(transfers, self._frame_bytes), strict=True):
            if rate == transfer.rate:
                continue
            transfer.advance(now)
            transfer.rate = rate
            transfer.version += 1
            moment = transfer.end()
            if moment is not None:
                self._appointments.at(moment, partial(self._check, transfer, transfer.version))

    def _check(self, transfer: Transfer, version: int, now: Nanoseconds) -> None:
        if version == transfer.version:
            transfer.ended(now)

    def _ended(self, channel: Channel, now: Nanoseconds) -> None:
        then = channel.then
        self._remove(now, channel)
        assert then is not None
        then(now)
        # `then` may have queued more on this very channel, or closed it.
        if channel.flowing is None:
            self._next(now, channel)
