"""The load of Blink's evaluation and its figures."""

import math

import numpy as np
import pytest

from testbed.blink.parameters import BlinkParameters
from testbed.experiment.iteration_systems import iterated
from testbed.experiment.paper_load import (
    DURATION,
    LONG_EVERY,
    LONG_FIRST,
    LONG_PROMPT,
    PROMPT_MEAN,
    RATES,
    WORKING,
    asked,
    evaluate,
    law_of,
)
from testbed.serving.host_work import Contention
from testbed.serving.models import MODELS


def test_there_are_thirteen_rates_from_1_to_32_with_those_that_the_paper_names():
    assert (len(RATES), RATES[0], RATES[-1]) == (13, 1, 32)
    assert set(WORKING.values()) < set(RATES)
    assert set(WORKING) == set(MODELS)


def test_rows_are_the_same_at_every_rate_and_mean_prompts_are_the_papers():
    law = law_of("qwen-3-32b")
    _, few, answers = asked(1, 1, law)
    _, many, more = asked(32, 1, law)
    assert np.array_equal(few, many[: len(few)])
    assert np.array_equal(answers, more[: len(answers)])
    assert np.flatnonzero(many == LONG_PROMPT).tolist() == [LONG_FIRST, LONG_FIRST + LONG_EVERY]
    assert many.mean() == pytest.approx(PROMPT_MEAN, rel=0.05)
    assert law_of("phi-4-15b").long_prompt < MODELS["phi-4-15b"].context_tokens
    assert law_of("qwen-3-32b", None).long_prompt is None


def test_a_minute_has_so_many_requests_and_ends_with_them():
    sent, _, _ = asked(4, 2, law_of("llama-3-8b"))
    assert len(sent) == 240
    assert sent[-1] == DURATION


def test_figures_are_geometric_means_below_saturation_and_blink_does_not_hear_its_neighbours():
    system = iterated(BlinkParameters(model="qwen-3-32b"), context=40_960)
    found = evaluate(system, "qwen-3-32b", seeds=(1,))
    one, two = found.rates[:2]
    assert found.ttft_p99_ms == pytest.approx(math.sqrt(one.ttft_p99_ms * two.ttft_p99_ms))
    assert found.saturation_requests_per_s == pytest.approx(np.mean([row.requests_per_s for row in found.rates[2:]]))
    assert found.tpot_p99_without_ttft_ms < found.tpot_p99_ms
    loud = Contention(threads=24, slowdown=9.0, stalls_per_ms=1.0, stall_ms=(1.0, 40.0), wake_ms=(10.0,))
    assert evaluate(system, "qwen-3-32b", contention=loud, seeds=(1,)) == found
    plain = evaluate(system, "qwen-3-32b", law=law_of("qwen-3-32b", None), seeds=(1,))
    assert plain.ttft_p99_ms < found.ttft_p99_ms / 10, "the longest conversations make the tail"
