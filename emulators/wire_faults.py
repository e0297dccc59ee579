"""What goes wrong on purpose with the packets that leave a soft RNIC: lost, doubled, out of order, damaged.

For tests and labs; the fabrics of a run are lossless. Chances are drawn from a seeded generator, so a run can be made
again. The simulated wires have the same four faults in `testbed.network.link`, where time is a number.
"""

from __future__ import annotations

from random import Random

import msgspec

KINDS = ("drop", "duplicate", "reorder", "corrupt")


class WireFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A probability from 0 to 1 of each fault, for each packet that leaves."""

    drop: float = 0.0
    """The packet is lost."""
    duplicate: float = 0.0
    """It is sent twice."""
    reorder: float = 0.0
    """It waits until the queue pair's next packet has left; the last one of all waits for its own retransmission."""
    corrupt: float = 0.0
    """One of its bits is flipped, ICRC included."""
    seed: int = 1

    def __post_init__(self) -> None:
        for kind in KINDS:
            if not 0.0 <= getattr(self, kind) <= 1.0:
                raise ValueError(f"{kind} is {getattr(self, kind)}; allowed is 0 to 1")

    @property
    def any(self) -> bool:
        """False if nothing is to go wrong."""
        return any(getattr(self, kind) for kind in KINDS)


class WireDamage:
    """Does what `WireFaults` says to the packets of one queue pair."""

    def __init__(self, faults: WireFaults, queue_pair: int) -> None:
        self._faults = faults
        self._random = Random(faults.seed << 24 | queue_pair)
        self._held: bytes | None = None

    def packets(self, packet: bytes) -> list[bytes]:
        """What is to leave in place of `packet`, in this order."""
        faults, draw = self._faults, self._random.random
        if draw() < faults.drop:
            return []
        if draw() < faults.corrupt:
            broken = bytearray(packet)
            broken[self._random.randrange(len(broken))] ^= 1 << self._random.randrange(8)
            packet = bytes(broken)
        if self._held is None and draw() < faults.reorder:
            self._held = packet
            return []
        leaving = [packet, packet] if draw() < faults.duplicate else [packet]
        if self._held is not None:
            leaving.append(self._held)
            self._held = None
        return leaving
