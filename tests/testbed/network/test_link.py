"""Links: delay, and faults as often as asked."""

from __future__ import annotations

from random import Random

import pytest

from testbed.network.link import Faults, Link


def test_a_good_link_delays_and_nothing_else() -> None:
    link = Link(500)
    assert link.carry(1_000, b"datagram") == [(1_500, b"datagram")]


@pytest.mark.parametrize("field", ["loss", "duplication", "reordering", "corruption"])
def test_each_fault_comes_as_often_as_asked(field: str) -> None:
    link = Link(500, Faults(**{field: 0.25}), Random(1))
    arrivals = [link.carry(0, bytes(20)) for _ in range(4_000)]
    counted = {
        "loss": sum(not copies for copies in arrivals),
        "duplication": sum(len(copies) == 2 for copies in arrivals),
        "reordering": sum(moment != 500 for copies in arrivals for moment, _ in copies),
        "corruption": sum(datagram != bytes(20) for copies in arrivals for _, datagram in copies),
    }
    assert counted.pop(field) == pytest.approx(1_000, abs=100)
    assert set(counted.values()) == {0}
    assert link.lost == (1_000 if field != "loss" else sum(not copies for copies in arrivals)) * (field == "loss")
    assert link.damaged == sum(datagram != bytes(20) for copies in arrivals for _, datagram in copies)


def test_damage_is_one_bit_and_holding_is_bounded() -> None:
    link = Link(500, Faults(corruption=1.0, reordering=1.0, hold=100), Random(2))
    for _ in range(200):
        ((moment, datagram),) = link.carry(0, bytes(20))
        assert int.from_bytes(datagram).bit_count() == 1
        assert 501 <= moment <= 600


def test_the_same_seed_does_the_same() -> None:
    faults = Faults(loss=0.2, duplication=0.2, reordering=0.2, corruption=0.2)
    runs = [[Link(5, faults, random).carry(t, bytes(9)) for t in range(50)] for random in (Random(3), Random(3))]
    assert runs[0] == runs[1]


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ValueError, match=r"loss is 1.5; allowed is 0 to 1"):
        Faults(loss=1.5)
    with pytest.raises(ValueError, match="hold is 0"):
        Faults(hold=0)
    with pytest.raises(ValueError, match="needs a seeded Random"):
        Link(1, Faults(loss=0.1))
