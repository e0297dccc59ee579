from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.serving.cost_model import CostModel, Profile, read_profile
from testbed.serving.models import MODELS
from testbed.serving.profiles import PROFILES, ProfileError
from testbed.units import MILLISECOND, from_milliseconds

LLAMA = CostModel(read_profile("llama-3-8b.toml"))
GOOD = (PROFILES / "llama-3-8b.toml").read_text()
FILE = "profile.toml"


def read(folder: Path, data: bytes) -> Profile:
    """The profile with these bytes."""
    (folder / FILE).write_bytes(data)
    return read_profile(FILE, folder)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_has_a_profile_with_a_source(name: str) -> None:
    model = MODELS[name]
    profile = read_profile(model.profile)
    assert profile.model == name
    assert "aiconfigurator" in profile.source
    assert profile.derived == model.profile_derived
    assert bool(profile.note) == profile.derived


def test_no_profile_lies_about_that_no_model_reads() -> None:
    lying = {path.name for path in PROFILES.glob("*.toml") if not path.name.startswith("host-")}
    assert lying == {model.profile for model in MODELS.values()}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_table_itself_is_reproduced_exactly(name: str) -> None:
    profile = read_profile(MODELS[name].profile)
    model = CostModel(profile)
    for tokens, ms in zip(profile.prefill.tokens, profile.prefill.ms, strict=True):
        assert model.prefill(tokens) == (from_milliseconds(ms), False)
    for context, row in zip(profile.decode.contexts, profile.decode.ms, strict=True):
        for batch, ms in zip(profile.decode.batches, row, strict=True):
            assert model.decode(batch, batch * context) == (from_milliseconds(ms), False)


def test_between_points_it_is_linear() -> None:
    assert LLAMA.prefill(768).duration == from_milliseconds((10.4 + 19.4) / 2)
    assert LLAMA.decode(24, 24 * 1024).duration == from_milliseconds((7.27 + 8.07) / 2)
    assert LLAMA.decode(16, 16 * 2560).duration == from_milliseconds((7.27 + 9.75) / 2)


@pytest.mark.parametrize(
    ("batch", "context", "outside"),
    [(1, 1_024, False), (1, 1_023, True), (257, 257 * 1_024, True), (256, 256 * 16_384, False), (4, 4 * 16_385, True)],
)
def test_what_lies_outside_the_table_says_so(batch: int, context: int, outside: bool) -> None:
    assert LLAMA.decode(batch, context).extrapolated is outside


def test_prefill_outside_the_table_says_so() -> None:
    assert [LLAMA.prefill(tokens).extrapolated for tokens in (255, 256, 16_384, 16_385)] == [True, False, False, True]


def test_another_engine_takes_so_many_times_as_long() -> None:
    slower = CostModel(read_profile("llama-3-8b.toml"), 1.25)
    assert slower.prefill(1_024).duration == from_milliseconds(19.4 * 1.25)
    assert slower.decode(64, 64 * 1_024).duration == from_milliseconds(10.2 * 1.25)
    assert slower.floor > LLAMA.floor


def test_beyond_the_table_a_prefill_goes_on_as_a_parabola() -> None:
    # Llama-3 8B: 80.2, 184 and 415 ms at 4,096, 8,192 and 16,384 tokens; Newton's form by hand.
    first, second = (184 - 80.2) / 4_096, (415 - 184) / 8_192
    by_hand = 415 + second * 16_384 + (second - first) / 12_288 * 16_384 * 24_576
    assert LLAMA.prefill(32_768).duration == pytest.approx(by_hand * MILLISECOND, abs=1)
    assert LLAMA.prefill(16_385).duration - LLAMA.prefill(16_384).duration < 2 * MILLISECOND // 50


@settings(max_examples=200)
@given(batch=st.integers(1, 300), mean=st.integers(0, 40_000), more=st.integers(0, 5_000))
def test_more_context_never_costs_less_and_all_times_are_positive(batch: int, mean: int, more: int) -> None:
    for model in MODELS.values():
        cost = CostModel(read_profile(model.profile)) if model.name != "llama-3-8b" else LLAMA
        less, longer = cost.decode(batch, batch * mean), cost.decode(batch, batch * (mean + more))
        assert 0 < less.duration <= longer.duration


@settings(max_examples=200)
@given(tokens=st.integers(1, 50_000), more=st.integers(0, 5_000))
def test_more_prompt_never_costs_less(tokens: int, more: int) -> None:
    assert 0 < LLAMA.prefill(tokens).duration <= LLAMA.prefill(tokens + more).duration


def test_the_closed_form_of_the_source_agrees_within_its_own_error() -> None:
    """6.10 + 0.0086 B + 0.04275 B K, at most 8 % off (design/serving.md 5.2)."""
    for batch in (1, 8, 16, 32, 64, 128, 256):
        for thousand in (1.024, 4.096, 16.384):
            fit = 6.10 + 0.0086 * batch + 0.04275 * batch * thousand
            ours = LLAMA.decode(batch, round(batch * thousand * 1000)).duration / MILLISECOND
            assert abs(fit - ours) / ours < 0.12


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("source = ", "sauce = ", "sauce"),
        ("[256, 512", "[512, 256", "prefill.tokens"),
        ("ms = [7.4, ", "ms = [", "prefill.ms has 6 values"),
        ("7.4", "-7.4", "prefill.ms must be positive"),
        ("7.4", "'7.4'", "$.prefill.ms[0]"),
        ("  [5.87, 6.4, 7.27, 8.07, 10.2, 12.3, 18.6],\n", "", "2 rows for 3 contexts"),
        ("[prefill]", "[prefill", "line"),
        ("derived = false", "derived = 7", "$.derived"),
    ],
)
def test_a_bad_profile_is_named_with_file_and_fault(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1).encode())
    assert str(caught.value).startswith(f"{tmp_path / FILE}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="source must say"):
        read(tmp_path, GOOD.replace('source = "', 'source = " "\nnote2 = "', 1).replace("note2", "#").encode())


def test_a_missing_profile_is_named() -> None:
    with pytest.raises(ProfileError, match=r"nothing\.toml: No such file"):
        read_profile("nothing.toml")


def test_bytes_that_are_no_text_are_a_profile_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        read(tmp_path, b"\xff\xfe")
