"""A reliable connection's ends, settings and counters: what requester, responder and queue pair share.

Knows no packet layout, no memory, no time beyond lengths of it. Defaults follow Linux' rxe and libibverbs' usual
values (timeout 14, retry count 7); RNR timer codes are those of ibv_modify_qp(3).
"""

from __future__ import annotations

from typing import Final

import msgspec

from testbed.network.roce import PSN_MASK
from testbed.units import MICROSECOND, Nanoseconds

RNR_DELAYS: Final[tuple[Nanoseconds, ...]] = tuple(
    tens * 10 * MICROSECOND
    for tens in (
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    )
)  # fmt: skip
"""How long the 32 RNR timer codes make a requester wait (code 0 is the longest, 655.36 ms)."""

MAXIMUM_MESSAGE_BYTES: Final = 1 << 31
"""Largest message of a work request (IBA 9.7)."""

RENEWAL_STRIDE: Final = 0x61C887
"""Sequence numbers between a connection and its successor: below half of 2**24, hence "ahead", and odd, so no number
comes again before 2**24 renewals (2**24 divided by the golden ratio squared, as hashes spread integers)."""


def local_ack_timeout(code: int) -> Nanoseconds:
    """The retransmission timeout of a code of ibv_modify_qp(3): 4.096 µs × 2^code."""
    return 4_096 << code


class ConnectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one end of a reliable connection behaves; both ends take the same path MTU."""

    path_mtu: int = 4096
    """Payload bytes of a full packet: 256, 512, 1024, 2048 or 4096."""
    window_packets: int = 128
    """Most packet sequence numbers without acknowledgement (rxe's RXE_MAX_UNACKED_PSNS)."""
    ack_interval_packets: int = 64
    """A long message asks for an ACK after so many packets (rxe's RXE_MAX_PKT_PER_ACK), and at its end."""
    retransmission_timeout: Nanoseconds = 4_096 << 14
    """Without progress for so long, everything unacknowledged is sent again: 4.096 µs × 2^14 = 67 ms."""
    retry_limit: int = 7
    """Timeouts without progress in between before the connection fails with RETRY_EXCEEDED."""
    rnr_retry_limit: int = 6
    """RNR NAKs without progress in between before RNR_RETRY_EXCEEDED. No value means for ever: nothing may hang."""
    rnr_timer: int = 12
    """RNR timer code that this end's responder asks for; 12 is 0.64 ms."""
    fetch_depth: int = 16
    """READs and atomics in flight at once; the responder keeps as many atomic results for replay."""

    def __post_init__(self) -> None:
        if self.path_mtu not in (256, 512, 1024, 2048, 4096):
            raise ValueError(f"path_mtu is {self.path_mtu}; allowed are 256, 512, 1024, 2048 and 4096")
        for field, low, high in (
            ("window_packets", 1, 1 << 22),
            ("ack_interval_packets", 1, self.window_packets),
            ("retransmission_timeout", 1, 1 << 62),
            ("retry_limit", 0, 7),
            ("rnr_retry_limit", 0, 7),
            ("rnr_timer", 0, 31),
            ("fetch_depth", 1, 255),
        ):
            value = getattr(self, field)
            if not low <= value <= high:
                raise ValueError(f"{field} is {value}; allowed is {low} to {high}")


class Connection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The two ends of a reliable connection, seen from one of them."""

    peer: str
    """Name of the node at the other end."""
    number: int
    """Own queue pair, 24 bits."""
    peer_number: int
    address: str
    """Own IPv4 address."""
    peer_address: str
    initial_psn: int
    """First sequence number that this end sends."""
    peer_psn: int
    """First sequence number that the peer sends."""
    service_level: int = 0

    def __post_init__(self) -> None:
        for field in ("number", "peer_number", "initial_psn", "peer_psn"):
            value = getattr(self, field)
            if not 0 <= value <= PSN_MASK:
                raise ValueError(f"{field} is {value}; allowed is 0 to {PSN_MASK} (24 bits)")
        if not 0 <= self.service_level <= 15:
            raise ValueError(f"service_level is {self.service_level}; allowed is 0 to 15")

    def renewed(self, turns: int) -> Connection:
        """The same two ends, `turns` connections later, with sequence numbers that both ends compute alike.

        They lie far ahead, so packets of the connection before are no part of this one, and an end that alone went
        on is refused by the other as a gap (NAK 0x60 for a number that it never sent) instead of being taken for a
        repetition.
        """
        return msgspec.structs.replace(
            self,
            initial_psn=(self.initial_psn + turns * RENEWAL_STRIDE) & PSN_MASK,
            peer_psn=(self.peer_psn + turns * RENEWAL_STRIDE) & PSN_MASK,
        )


class Counters:
    """What a queue pair has seen, since it was made. Plain integers that only grow."""

    __slots__ = (
        "duplicates", "icrc_errors", "malformed", "naks_received", "naks_sent", "received", "resent", "rnr_naks",
        "sent", "sequence_errors", "timeouts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sent = 0
        """Packets handed to the wire."""
        self.received = 0
        """Packets that passed their ICRC."""
        self.resent = 0
        """Request packets sent again, counted in `sent` too."""
        self.naks_sent = 0
        self.naks_received = 0
        self.rnr_naks = 0
        """RNR NAKs received."""
        self.icrc_errors = 0
        self.malformed = 0
        """Packets with a right ICRC that make no sense here; dropped."""
        self.sequence_errors = 0
        """Request packets that came ahead of a gap; dropped."""
        self.duplicates = 0
        """Request packets that had been executed before."""
        self.timeouts = 0

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}
