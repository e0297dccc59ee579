"""What two ends of a real reliable connection tell each other when a run starts, and the way from planned to real.

A plan fixes queue-pair numbers, addresses and keys; a real RNIC gives out its own. So each node writes what it got
into `control/<node>.rdma` of the run folder, whole (by renaming), and reads its peers'. Machines go on naming what the
plan says: `Translation` puts the real address and key into a request on its way to the RNIC.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from emulators.verbs import VerbsError
from testbed.machine import RemoteAddress

SUFFIX = ".rdma"
_LOOK_EVERY_S = 0.01
_ADDRESS_MASK = (1 << 64) - 1
_KEY_MASK = (1 << 32) - 1


class PairEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One queue pair."""

    planned: int
    """Its number in the plan."""
    number: int
    """What the RNIC calls it."""
    psn: int
    """First sequence number that it sends."""


class RegionEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory region."""

    name: str
    planned_address: int
    planned_key: int
    address: int
    key: int
    """The RNIC's rkey."""


class NodeEnds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that peers must know of one node."""

    node: str
    gid: str
    """Eight groups of four hex digits."""
    reads_in: int
    """READs and atomics that a queue pair of it answers at once."""
    pairs: tuple[PairEnd, ...]
    regions: tuple[RegionEnd, ...]

    def pair(self, planned: int) -> PairEnd | None:
        """The queue pair that the plan calls so."""
        return next((pair for pair in self.pairs if pair.planned == planned), None)


class PeersMissing(VerbsError):
    """Peers have not said in time which queue pairs they have."""

    def __init__(self, node: str, missing: Iterable[str], waited_s: float) -> None:
        self.node = node
        self.missing = tuple(missing)
        self.waited_s = waited_s
        super().__init__(f"{node}: no RDMA ends of {', '.join(self.missing)} after {waited_s:g} s")


class BadEnds(VerbsError):
    """A peer's file says what it may not."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


def write_ends(control: Path, ends: NodeEnds) -> None:
    """Shows `ends` to the peers; the file appears whole."""
    control.mkdir(parents=True, exist_ok=True)
    draft = control / f".{ends.node}{SUFFIX}.{os.getpid()}"
    draft.write_bytes(msgspec.json.encode(ends))
    draft.rename(control / f"{ends.node}{SUFFIX}")


def read_ends(control: Path, node: str) -> NodeEnds | None:
    """What `node` has shown, or None while it has not. Raises `BadEnds`."""
    path = control / f"{node}{SUFFIX}"
    try:
        ends = msgspec.json.decode(path.read_bytes(), type=NodeEnds)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise BadEnds(path, str(error)) from error
    if ends.node != node:
        raise BadEnds(path, f"it is {ends.node}'s")
    return ends


def await_ends(
    control: Path, node: str, peers: Iterable[str], timeout_s: float, stopped: Callable[[], bool] = lambda: False
) -> dict[str, NodeEnds]:
    """The ends of all `peers`, which start at about the same time. Raises `PeersMissing` after `timeout_s`, or as soon
    as `stopped()`; and `BadEnds`.
    """
    begun = time.monotonic()
    missing, found = sorted(set(peers)), dict[str, NodeEnds]()
    while True:
        for peer in missing:
            ends = read_ends(control, peer)
            if ends is not None:
                found[peer] = ends
        missing = [peer for peer in missing if peer not in found]
        if not missing:
            return found
        waited = time.monotonic() - begun
        if waited >= timeout_s or stopped():
            raise PeersMissing(node, missing, round(waited, 1))
        time.sleep(_LOOK_EVERY_S)


class Translation:
    """From a peer's planned addresses and keys to its real ones."""

    def __init__(self, ends: NodeEnds) -> None:
        self._real = {region.planned_key: region for region in ends.regions}
        taken = {region.key for region in ends.regions}
        self._no_key = next(key for key in range(_KEY_MASK, 0, -1) if key not in taken)

    def real(self, remote: RemoteAddress) -> tuple[int, int]:
        """Address and key for the RNIC.

        Whatever lies outside of a planned region lies as far outside of the real one, and a key that the plan does
        not know becomes one that the peer has not given out: it is the peer's RNIC that refuses, as an emulated one.
        """
        region = self._real.get(remote.key)
        if region is None:
            return remote.address, self._no_key
        return (remote.address - region.planned_address + region.address) & _ADDRESS_MASK, region.key
