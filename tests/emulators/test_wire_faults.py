"""Faults on purpose: each kind does what it says, no packet appears from nowhere, the same seed does the same."""

from __future__ import annotations

from collections import Counter

import pytest

from emulators.wire_faults import KINDS, WireDamage, WireFaults

PACKETS = [number.to_bytes(4, "big") * 25 for number in range(2000)]


def through(faults: WireFaults, queue_pair: int = 5) -> list[bytes]:
    damage = WireDamage(faults, queue_pair)
    return [left for packet in PACKETS for left in damage.packets(packet)]


def test_no_fault_changes_nothing() -> None:
    assert through(WireFaults()) == PACKETS
    assert not WireFaults().any


def test_lost_packets_are_gone_and_the_others_in_order() -> None:
    left = through(WireFaults(drop=0.05))
    assert 1850 < len(left) < 1950
    assert left == sorted(left)


def test_doubled_packets_leave_twice() -> None:
    counts = Counter(through(WireFaults(duplicate=0.05)))
    assert set(counts) == set(PACKETS)
    assert 50 < sum(count == 2 for count in counts.values()) < 150
    assert max(counts.values()) == 2


def test_reordered_packets_are_overtaken_by_one() -> None:
    left = through(WireFaults(reorder=0.05))
    assert sorted(left) == PACKETS[: len(left)]
    swapped = [place for place, packet in enumerate(left) if packet != PACKETS[place]]
    assert 100 < len(swapped) < 300
    assert all(abs(PACKETS.index(left[place]) - place) == 1 for place in swapped)


def test_damaged_packets_differ_by_one_bit() -> None:
    left = through(WireFaults(corrupt=0.05))
    assert len(left) == len(PACKETS)
    flipped = [
        sum((a ^ b).bit_count() for a, b in zip(packet, original, strict=True))
        for packet, original in zip(left, PACKETS, strict=True)
    ]
    assert set(flipped) == {0, 1}
    assert 50 < sum(flipped) < 150


def test_the_same_seed_does_the_same_and_queue_pairs_differ() -> None:
    faults = WireFaults(0.01, 0.01, 0.01, 0.01, seed=9)
    assert through(faults) == through(faults)
    assert through(faults) != through(faults, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chance_is_from_0_to_1(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} is 1.5; allowed is 0 to 1"):
        WireFaults(**{kind: 1.5})
