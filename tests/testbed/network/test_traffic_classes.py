"""The RoCE form of lanes: shares of backlogged classes are their weights; DSCP names the class."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network.traffic_classes import TrafficClasses
from tests.testbed.network.test_arbiter import shares as exact_shares

FRAME = 4154


def test_the_papers_four_classes() -> None:
    table = TrafficClasses().lane_table()
    assert [table.lane_of(level) for level in range(6)] == [0, 1, 2, 3, 0, 0]
    assert exact_shares(table, dict.fromkeys(range(4), FRAME))[2] == pytest.approx(1, abs=0.02)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_shares_are_the_weights(weights: list[int]) -> None:
    classes = TrafficClasses(
        weights=",".join(f"{number}:{weight}" for number, weight in enumerate(weights)), dscp="0:0"
    )
    measured = exact_shares(classes.lane_table(), dict.fromkeys(range(len(weights)), FRAME))
    expected = {number: 100 * weight / sum(weights) for number, weight in enumerate(weights)}
    assert measured == pytest.approx(expected, abs=1.5)


def test_a_class_alone_has_the_link() -> None:
    assert exact_shares(TrafficClasses().lane_table(), {2: FRAME}) == {2: 100}


def test_classes_take_turns_and_not_whole_rounds() -> None:
    table = TrafficClasses(weights="0:6,1:6", dscp="0:0,4:1").lane_table()
    assert table.vlarb_low == "0:64,1:64"
    assert TrafficClasses(weights="0:6,1:5", dscp="0:0").lane_table().vlarb_low == "0:192,1:192,0:192,1:128"


def test_levels_without_a_class_are_class_0() -> None:
    table = TrafficClasses(weights="0:1,1:1", dscp="8:1").lane_table()
    assert [table.lane_of(level) for level in range(4)] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"weights": "0:33,2:1"}, "without gaps"),
        ({"weights": "0:33,0:1"}, "names 0 twice"),
        ({"weights": "0:0"}, "allowed are"),
        ({"weights": "0"}, "is not two whole numbers"),
        ({"weights": "0:97,1:101", "dscp": "0:0"}, "take 67 entries"),
        ({"dscp": "64:0"}, "allowed are"),
        ({"dscp": "0:4"}, "allowed are"),
        ({"dscp": "x:1"}, "is not two whole numbers"),
        ({"pfc": "0"}, "unknown field"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(fields: dict[str, str], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(fields, TrafficClasses)
