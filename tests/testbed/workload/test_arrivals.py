from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.units import SECOND
from testbed.workload.arrivals import Arrivals, Burst, Constant, Poisson
from testbed.workload.streams import stream

KINDS = st.one_of(
    st.builds(Poisson, rate_per_s=st.floats(0.01, 1e5), burstiness=st.floats(0.05, 50)),
    st.builds(Constant, rate_per_s=st.floats(0.01, 1e5)),
    st.builds(Burst, size=st.integers(1, 9), every_s=st.floats(0.001, 100)),
)


@given(kind=KINDS, count=st.integers(0, 60), seed=st.integers(0, 2**40))
def test_arrivals_never_go_back_and_repeat_with_the_seed(kind: Arrivals, count: int, seed: int) -> None:
    moments = kind.moments(count, stream(seed, "a"))
    assert len(moments) == count
    assert all(isinstance(moment, int) for moment in moments)
    assert moments == sorted(moments)
    assert all(moment >= 0 for moment in moments)
    assert kind.moments(count, stream(seed, "a")) == moments


@given(rate=st.floats(0.5, 1000), burstiness=st.floats(0.1, 10), count=st.integers(1, 100))
def test_the_realised_poisson_rate_is_exact(rate: float, burstiness: float, count: int) -> None:
    moments = Poisson(rate, burstiness).moments(count, stream(3, "a"))
    assert moments[-1] == round(count * SECOND / rate)


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_the_gaps_vary_as_the_gamma_law_says(burstiness: float, variation: float) -> None:
    """Gamma with shape k has a coefficient of variation of 1 / sqrt(k)."""
    moments = Poisson(100, burstiness).moments(20_000, stream(5, "a"))
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(variation, rel=0.05)


def test_gaps_that_underflow_do_not_divide_by_zero() -> None:
    assert Poisson(1, 1e-9).moments(3, stream(0, "a")) == [3 * SECOND] * 3


def test_constant_and_burst_are_what_they_say() -> None:
    assert Constant(4).moments(3, stream(0, "a")) == [0, SECOND // 4, SECOND // 2]
    assert Burst(2, 0.5).moments(5, stream(0, "a")) == [0, 0, SECOND // 2, SECOND // 2, SECOND]
