"""Figures are worked out by hand or by numpy, never by the code under test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events import schema
from testbed.metrics.fold import Folding
from testbed.metrics.latency import (
    DEFINITIONS,
    PERCENTILES,
    LatencyFold,
    Objectives,
    Selection,
    distribution,
    goodput,
    latencies,
    measured,
    quantile,
)
from testbed.metrics.requests import Exchange
from testbed.units import MILLISECOND
from tests.testbed.metrics.stories import MS, Story, ask


def exchange(sent_ms: float, arrivals: list[float], *, counts: list[int] | None = None, name: str = "q") -> Exchange:
    times = [round(t * MS) for t in arrivals]
    counts = counts or [1] * len(times)
    return Exchange(
        name, round(sent_ms * MS), round(sent_ms * MS), times=times, counts=counts,
        ended=times[-1] if times else 0, tokens=sum(counts),
    )  # fmt: skip


# Sent at 0: first token at 30, then gaps of 10, 10 and 40. Another of two tokens: first at 50, gap 20.
LONG = exchange(0, [30, 40, 50, 90])
SHORT = exchange(100, [150, 170], name="r")


def test_vllm_pools_the_gaps_of_all_requests() -> None:
    found = latencies([LONG, SHORT], "vllm")
    assert (found.ttft_ms.n, found.ttft_ms.mean, found.ttft_ms.worst) == (2, 40.0, 50.0)
    assert found.itl_ms.n == 4
    assert found.itl_ms.mean == 20.0  # (10 + 10 + 40 + 20) / 4
    assert found.itl_ms.p50 == 15.0
    assert found.tpot_ms.n == 2
    assert found.tpot_ms.mean == 20.0  # 60 / 3 and 20 / 1
    assert found.ttst_ms.mean == 15.0


def test_guidellm_weights_means_of_requests_and_puts_ttft_into_tpot() -> None:
    found = latencies([LONG, SHORT], "guidellm")
    assert found.itl_ms.n == 2
    assert found.itl_ms.mean == 20.0
    # (90 - 0) / 4 weighs 4, (170 - 100) / 2 weighs 2.
    assert found.tpot_ms.mean == pytest.approx((22.5 * 4 + 35 * 2) / 6, abs=1e-6)
    assert found.tpot_ms.p50 == 22.5
    assert "TTFT in it" in found.tpot_ms.definition
    assert found.tpot_ms.percentile == "observed"


def test_inference_perf_gives_each_token_its_chunks_time() -> None:
    bunched = exchange(0, [10, 30], counts=[2, 3])
    found = latencies([bunched, exchange(0, [10])], "inference-perf")
    assert found.ttft_ms.n == 1  # an answer of one token has no TTFT here
    assert (found.itl_ms.n, found.itl_ms.mean) == (4, 5.0)  # 0, 20, 0, 0
    assert found.tpot_ms.mean == 5.0  # 20 / 4
    assert latencies([bunched], "vllm").itl_ms.mean == 20.0


def test_genai_perf_rounds_to_whole_nanoseconds_and_aiperf_does_not() -> None:
    uneven = Exchange("q", 0, 0, times=[0, 5, 10, 20], counts=[1] * 4, ended=20, tokens=4)
    assert latencies([uneven], "genai-perf").itl_ms.p50 == round(7 / MILLISECOND, 6)
    assert DEFINITIONS["aiperf"].itl(uneven) == [(20 / 3, 1)]


def test_the_two_meanings_of_p99_itl_differ_and_say_so() -> None:
    # 199 requests with an even gap of 10 ms and one pause of 500 ms each in one of 20 gaps.
    many = [exchange(0, [*range(10, 110, 10), 610, *range(620, 720, 10)], name=f"q{k}") for k in range(200)]
    pooled, per_request = latencies(many, "vllm").itl_ms, latencies(many, "guidellm").itl_ms
    assert (pooled.p50, per_request.p50) == (10.0, 35.0)
    assert pooled.p99 == 510.0
    assert per_request.p99 == 35.0
    assert pooled.definition != per_request.definition


def test_a_percentile_that_n_is_too_small_for_is_none() -> None:
    for name, thousandths, least in PERCENTILES:
        assert least >= 1000 / (1000 - thousandths) or name == "p50"
        few = distribution([(1.0, 1)] * (least - 1), "linear", "")
        enough = distribution([(1.0, 1)] * least, "linear", "")
        assert getattr(few, name) is None, name
        assert getattr(enough, name) is not None, name


def test_nothing_measured_is_none_everywhere_and_no_warning() -> None:
    empty = latencies([], "vllm").ttft_ms
    assert (empty.n, empty.mean, empty.p50, empty.p99, empty.worst) == (0, None, None, None, None)


def test_a_request_of_one_token_has_no_gap_and_no_tpot() -> None:
    one = latencies([exchange(0, [25])], "vllm")
    assert one.ttft_ms.p50 == 25.0
    assert (one.itl_ms.n, one.tpot_ms.n, one.ttst_ms.n) == (0, 0, 0)
    assert latencies([exchange(0, [25])], "guidellm").tpot_ms.p50 == 25.0


def test_failed_and_unfinished_requests_count_in_no_latency() -> None:
    story = ask(Story(), "good", 0, [10, 20])
    story.at(0, "client0", schema.RequestSent("bad", 0, 0, 5, 9), schema.RequestSent("late", 0, 0, 5, 9))
    story.at(900, "client0", schema.TokenReceived("bad", 0), schema.TokenReceived("late", 0))
    story.at(950, "client0", schema.RequestFailed("bad", "error in the stream"))
    folding = Folding({"latencies": LatencyFold()}).take_all(story.records())
    found = folding.result("latencies")
    assert (found.ttft_ms.n, found.ttft_ms.worst, found.itl_ms.worst) == (1, 10.0, 10.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=80), st.sampled_from([500, 900, 990, 999]))
def test_quantiles_agree_with_numpy(values: list[int], thousandths: int) -> None:
    array = np.array(values, dtype=np.float64)
    ones = np.ones(len(values), dtype=np.int64)
    assert quantile(array, ones, thousandths, "linear") == np.percentile(array, thousandths / 10)
    observed = quantile(array, ones, thousandths, "observed")
    assert observed == np.percentile(array, thousandths / 10, method="inverted_cdf")
    assert observed in values


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 9)), min_size=1, max_size=30))
def test_a_weight_is_that_many_copies(samples: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in samples], dtype=np.float64)
    weights = np.array([weight for _, weight in samples], dtype=np.int64)
    copies = np.array([float(value) for value, weight in samples for _ in range(weight)])
    ones = np.ones(len(copies), dtype=np.int64)
    for _, thousandths, _ in PERCENTILES:
        assert quantile(values, weights, thousandths, "observed") == quantile(copies, ones, thousandths, "observed")


def test_warm_up_is_left_out_by_scheduled_time() -> None:
    asked = [exchange(t, [t + 5], name=f"q{t}") for t in (300, 0, 100, 200)]
    assert [one.name for one in measured(asked)] == ["q0", "q100", "q200", "q300"]
    assert [one.name for one in measured(asked, Selection(warm_up_requests=1))] == ["q100", "q200", "q300"]
    assert [one.name for one in measured(asked, Selection(warm_up=150 * MS))] == ["q200", "q300"]
    assert measured(asked, Selection(warm_up_requests=9)) == []
    assert measured([]) == []


def test_goodput_is_inclusive_and_a_failed_request_is_not_good() -> None:
    failed = Exchange("f", 0, 0, ended=5, error="refused")
    assert goodput([LONG, SHORT, failed], Objectives(ttft_ms=30)).good == 1
    both = goodput([LONG, SHORT, failed], Objectives(ttft_ms=50, tpot_ms=20))
    assert (both.good, both.judged, both.share) == (2, 3, 2 / 3)
    assert goodput([LONG, SHORT], Objectives(latency_ms=89.9)).good == 1
    one_token = exchange(0, [25])
    assert goodput([one_token], Objectives(tpot_ms=0.001)).good == 1
    assert goodput([], Objectives(ttft_ms=1)).share is None


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_every_definition_says_what_its_figures_mean(definition: str) -> None:
    found = latencies([LONG, SHORT], definition)
    for part in (found.ttft_ms, found.ttst_ms, found.itl_ms, found.tpot_ms):
        assert part.definition.startswith(f"{definition}: ")
        assert len(part.definition) > len(definition) + 5
        assert part.n > 0
