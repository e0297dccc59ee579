"""A link: what one end sends arrives at the other after a delay, unless a fault says otherwise.

Knows datagrams as bytes. Faults are for tests and labs: the modelled fabrics are lossless. Randomness is handed in.
"""

from __future__ import annotations

from random import Random

import msgspec

from testbed.units import Nanoseconds


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a link does to datagrams besides carrying them; each is a chance from 0 to 1 for each datagram."""

    loss: float = 0.0
    duplication: float = 0.0
    """The datagram arrives twice; each copy meets the other faults on its own."""
    reordering: float = 0.0
    """The datagram is held back by up to `hold`, so later ones overtake it."""
    corruption: float = 0.0
    """One bit of the datagram is flipped."""
    hold: Nanoseconds = 20_000

    def __post_init__(self) -> None:
        for field in ("loss", "duplication", "reordering", "corruption"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"{field} is {getattr(self, field)}; allowed is 0 to 1")
        if self.hold < 1:
            raise ValueError(f"hold is {self.hold}; allowed is 1 ns and more")


NO_FAULTS = Faults()


class Link:
    """One direction of a cable."""

    def __init__(self, delay: Nanoseconds, faults: Faults = NO_FAULTS, random: Random | None = None) -> None:
        if random is None and faults != NO_FAULTS:
            raise ValueError("a link with faults needs a seeded Random")
        self._delay = delay
        self._faults = faults
        self._random = random if faults != NO_FAULTS else None
        self.lost = 0
        self.damaged = 0

    def carry(self, now: Nanoseconds, datagram: bytes) -> list[tuple[Nanoseconds, bytes]]:
        """When which copies of `datagram`, sent at `now`, arrive."""
        arrival = now + self._delay
        if self._random is None:
            return [(arrival, datagram)]
        faults, chance = self._faults, self._random.random
        arrivals = []
        for _ in range(1 + (chance() < faults.duplication)):
            if chance() < faults.loss:
                self.lost += 1
                continue
            copy = self._damage(datagram) if chance() < faults.corruption else datagram
            held = self._random.randrange(1, faults.hold + 1) if chance() < faults.reordering else 0
            arrivals.append((arrival + held, copy))
        return arrivals

    def _damage(self, datagram: bytes) -> bytes:
        assert self._random is not None
        self.damaged += 1
        broken = bytearray(datagram)
        broken[self._random.randrange(len(broken))] ^= 1 << self._random.randrange(8)
        return bytes(broken)
