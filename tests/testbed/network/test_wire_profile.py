"""What a wire profile says of ports of any rate, from those that were measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from testbed.network.wire_profile import MODELLED, PortFigure, bits_in_series
from testbed.units import SECOND

LOW, HIGH = PortFigure(100_000_000, 200_000, 6_000_000), PortFigure(1_000_000_000, 250_000, 1_000_000)
PROFILE = replace(MODELLED, ports=(LOW, HIGH))


def test_the_bits_of_a_read_are_its_frames_and_the_first_one_twice() -> None:
    assert bits_in_series(65_536, 4_096) == 17 * (4_096 + 58) * 8
    assert bits_in_series(1, 4_096) == 2 * (1 + 58) * 8
    assert bits_in_series(4_097, 4_096) == (2 * 4_154 + 59) * 8
    assert bits_in_series(0, 4_096) == 2 * 58 * 8


def test_a_measured_rate_has_its_own_figure() -> None:
    for port in PROFILE.ports:
        alone = port.bulk_read - port.verb_round_trip
        found = PROFILE.read_time(port.rate_bits_per_s, 65_536, 4_096) - PROFILE.verb_round_trip
        assert found == pytest.approx(alone, rel=1e-5)


def test_between_two_rates_shares_are_between_too_and_beyond_the_last_the_rate_stays() -> None:
    middle = round(math.sqrt(LOW.rate_bits_per_s * HIGH.rate_bits_per_s))
    assert PROFILE.read_rate(middle) / middle == pytest.approx((LOW.read_share + HIGH.read_share) / 2, rel=1e-6)
    assert PROFILE.read_rate(10_000_000) == round(10_000_000 * LOW.read_share)
    assert PROFILE.read_rate(4_000_000_000) == PROFILE.read_rate(10**9) == round(10**9 * HIGH.read_share)


@given(rate=st.integers(1, 10**12), more=st.integers(1, 10**6), size=st.integers(0, 1 << 20))
def test_longer_reads_take_longer_and_nothing_is_below_a_verb(rate: int, more: int, size: int) -> None:
    time = PROFILE.read_time(rate, size, 4_096)
    assert PROFILE.verb_round_trip <= time <= PROFILE.read_time(rate, size + more, 4_096)


def test_without_ports_a_read_gets_the_rate() -> None:
    assert MODELLED.read_rate(123_456) == 123_456
    assert MODELLED.read_time(10**9, 0, 1_024) == MODELLED.verb_round_trip + bits_in_series(0, 1_024) * SECOND // 10**9
