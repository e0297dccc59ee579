from __future__ import annotations

from statistics import fmean, median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.workload.lengths import Fixed, ShareGpt, Uniform
from testbed.workload.streams import stream


def draw(kind: ShareGpt | Fixed | Uniform, count: int, seed: int = 1) -> list[tuple[int, int]]:
    return kind.pairs(count, stream(seed, "prompts"), stream(seed, "outputs"))


def test_sharegpt_has_the_published_means_before_the_caps() -> None:
    pairs = draw(ShareGpt(prompt_cap=1_000_000, output_cap=1_000_000), 40_000)
    assert fmean(prompt for prompt, _ in pairs) == pytest.approx(1019, rel=0.02)
    assert fmean(output for _, output in pairs) == pytest.approx(463, rel=0.03)
    # The shape that was fitted: mean / median = exp(sigma^2 / 2).
    assert 1019 / median(prompt for prompt, _ in pairs) == pytest.approx(857.46 / 731.5, rel=0.03)


@given(st.integers(0, 1000), st.integers(1, 3000), st.integers(1, 3000))
def test_caps_hold_and_nothing_is_empty(seed: int, prompt_cap: int, output_cap: int) -> None:
    for prompt, output in draw(ShareGpt(prompt_cap=prompt_cap, output_cap=output_cap), 20, seed):
        assert 1 <= prompt <= prompt_cap
        assert 1 <= output <= output_cap


def test_a_cap_on_answers_leaves_prompts_and_shorter_answers_as_they_were() -> None:
    free, capped = draw(ShareGpt(), 200), draw(ShareGpt(output_cap=256), 200)
    assert [prompt for prompt, _ in free] == [prompt for prompt, _ in capped]
    assert [min(output, 256) for _, output in free] == [output for _, output in capped]


def test_long_conversations_come_at_their_places_and_change_nobody_else() -> None:
    plain, long = draw(ShareGpt(), 50), draw(ShareGpt(long_prompt=30_000, long_first=7, long_every=20), 50)
    assert [place for place, (prompt, _) in enumerate(long) if prompt == 30_000] == [7, 27, 47]
    assert all(one == other for place, (one, other) in enumerate(zip(plain, long, strict=True)) if place % 20 != 7)
    assert [output for _, output in plain] == [output for _, output in long]


def test_more_requests_keep_the_first_ones() -> None:
    assert draw(ShareGpt(), 50)[:20] == draw(ShareGpt(), 20)


def test_fixed_and_uniform_are_what_they_say() -> None:
    assert draw(Fixed(7, 3), 2) == [(7, 3), (7, 3)]
    pairs = draw(Uniform(2, 4, 10, 11), 300)
    assert {prompt for prompt, _ in pairs} == {2, 3, 4}
    assert {output for _, output in pairs} == {10, 11}


@pytest.mark.parametrize("told", [(4, 2, 1, 1), (1, 1, 4, 2)])
def test_bounds_the_wrong_way_round_are_refused(told: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="is above"):
        Uniform(*told)
    table = dict(zip(("prompt_low", "prompt_high", "output_low", "output_high"), told, strict=True))
    with pytest.raises(msgspec.ValidationError, match="is above"):
        msgspec.convert(table, Uniform)
