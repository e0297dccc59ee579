"""InfiniBand QoS strings: what they mean, and that a wrong one is named."""

from __future__ import annotations

import pytest

from testbed.network.lanes import SERVICE_LEVELS, LaneTable, type_of_service


def test_the_papers_tables() -> None:
    table = LaneTable()
    assert table.high() == ((0, 192), (1, 192), (2, 0), (3, 192))
    assert table.low() == ((0, 192), (1, 192), (2, 64), (3, 192))
    assert [table.lane_of(level) for level in range(SERVICE_LEVELS)] == [0, 1, 2] + [3] * 13


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_vls": 0}, "max_vls is 0; allowed is 1 to 15"),
        ({"high_limit": 256}, "high_limit is 256; allowed is 0 to 255"),
        ({"vlarb_high": "0"}, "vlarb_high: '0' is not lane:weight"),
        ({"vlarb_low": "0:256"}, "vlarb_low: '256' is not a whole number from 0 to 255"),
        ({"vlarb_low": "4:1"}, "vlarb_low: '4' is not a whole number from 0 to 3"),
        ({"sl2vl": "0,-1"}, "sl2vl: '-1' is not a whole number"),
        ({"sl2vl": ",".join("0" * 17)}, "sl2vl names 17 lanes; allowed are 1 to 16"),
        ({"vlarb_low": ",".join(["0:1"] * 65)}, "vlarb_low has 65 entries; allowed are 1 to 64"),
        ({"vlarb_high": "0:1, 1 :2,x:3"}, "vlarb_high: 'x' is not a whole number from 0 to 3"),
        ({"vlarb_high": ""}, "vlarb_high: '' is not lane:weight"),
        ({"vlarb_high": "0:1", "vlarb_low": "0:1"}, "level 1 uses lane 1, which has no weight"),
    ],
)
def test_a_wrong_string_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LaneTable(**fields)  # type: ignore[arg-type]


def test_every_level_has_a_mark_of_its_own_that_leaves_ecn_alone() -> None:
    marks = [type_of_service(level) for level in range(SERVICE_LEVELS)]
    assert len(set(marks)) == SERVICE_LEVELS
    assert all(0 <= mark <= 0xFC and mark & 0x03 == 0 for mark in marks)
