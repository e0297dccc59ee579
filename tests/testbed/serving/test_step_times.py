"""Step times of the three models: the sources' numbers, derived ones recomputed, laws that every profile obeys."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.serving.profiles import ProfileError
from testbed.serving.step_times import FOLDER, StepTimes, read_step_profile

DSA = {
    # (new tokens, prefix): milliseconds of one layer, design serving 5.3.
    (512, 0): 0.77, (512, 8_192): 1.53, (512, 32_768): 1.52, (512, 65_536): 1.58, (512, 131_072): 2.25,
    (256, 32_768): 1.49, (1_024, 32_768): 2.30, (8_192, 32_768): 17.5,
    (4_096, 0): 6.1, (4_096, 32_768): 8.7, (4_096, 131_072): 15.3,
}  # fmt: skip
# Tokens of the group of 8 GPUs, which are 8 times those of one.
MOE_EP8 = {1: 0.115, 16: 0.248, 64: 0.435, 128: 0.489, 512: 0.615, 1_024: 0.802, 4_096: 2.17, 8_192: 4.60}
MEMORY = 3.35e12 * 0.8
FP8 = 1978e12 * 0.8
EXPERT_660B, EXPERT_27B = 3 * 7_168 * 2_048, 3 * 2_560 * 1_536

models = st.sampled_from(sorted(AGENTIC_MODELS))
pairs = st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 8_192)), max_size=12)


def test_every_agentic_model_has_a_profile_and_says_whether_it_is_derived():
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(AGENTIC_MODELS)
    for name, model in AGENTIC_MODELS.items():
        profile = read_step_profile(name)
        assert (profile.model, profile.layers) == (name, model.layers)
        assert profile.source
        assert bool(profile.note) >= profile.derived
    assert {name for name in AGENTIC_MODELS if read_step_profile(name).derived} == {"ds-27b", "qwen-2.5-32b"}


@pytest.mark.parametrize(("entry", "ms"), DSA.items())
def test_attention_of_the_large_model_is_within_an_eighth_of_every_entry_of_the_source(entry, ms):
    new, prefix = entry
    assert StepTimes.of("ds-660b").attention([(prefix, new)]) / 1e6 == pytest.approx(ms, rel=0.125)


def test_an_append_of_512_on_32k_takes_what_the_source_sums_up():
    times = StepTimes.of("ds-660b")
    assert 0.090 < times.layers * times.attention([(32_768, 512)]) / 1e9 < 0.097


def _gemm(weights, tokens):
    return 1e3 * max(weights / MEMORY, 2 * weights * tokens / FP8)


def _moe_27b(ms):
    floor, knee = 0.044, 0.489
    by_bytes, by_flop = 72 * EXPERT_27B / (256 * EXPERT_660B), 6 * EXPERT_27B / (8 * EXPERT_660B)
    return floor + (min(ms, knee) - floor) * by_bytes + max(ms - knee, 0) * by_flop


@pytest.mark.parametrize("tokens", [group // 8 for group in MOE_EP8 if group >= 8])
def test_the_rest_of_a_layer_is_the_sum_that_the_profile_says_it_is(tokens):
    large = 58 / 61 * MOE_EP8[8 * tokens] + _gemm((58 * EXPERT_660B + 3 * 3 * 7_168 * 18_432) / 61, tokens)
    small = 29 / 30 * _moe_27b(MOE_EP8[8 * tokens]) + _gemm((29 * 2 * EXPERT_27B + 3 * 2_560 * 12_288) / 30, tokens)
    assert StepTimes.of("ds-660b").rest(tokens) / 1e6 == pytest.approx(large, abs=2e-4)
    assert StepTimes.of("ds-27b").rest(tokens) / 1e6 == pytest.approx(small, abs=2e-4)


@pytest.mark.parametrize("sequences", [1, 2, 8, 16, 64, 128, 512, 1_024])
@pytest.mark.parametrize("name", ["ds-660b", "ds-27b"])
def test_a_decode_step_is_the_sum_that_the_profile_says_it_is(name, sequences):
    times = StepTimes.of(name)
    expected = times.layers * (0.163 + 0.0023 * sequences + times.rest(sequences) / 1e6)
    assert times.decode(sequences, 0) / 1e6 == pytest.approx(expected, abs=0.02)


def test_the_small_models_attention_is_scaled_by_flop_of_its_shape():
    def per_token(hidden, heads, q_rank, top, index_heads, index_width):
        queries = hidden * q_rank + q_rank * heads * 192 if q_rank else hidden * heads * 192
        index_in = q_rank or hidden
        weights = queries + hidden * 576 + 512 * heads * 256 + heads * 128 * hidden
        weights += index_in * index_heads * index_width + hidden * index_width
        return 2 * weights + 2 * heads * (576 + 512) * top

    ratio = per_token(2_560, 32, 0, 1_024, 32, 64) / per_token(7_168, 128, 1_536, 2_048, 64, 128)
    large, small = read_step_profile("ds-660b").attention, read_step_profile("ds-27b").attention
    assert small.token_ns / large.token_ns == pytest.approx(ratio, rel=1e-3)
    assert small.pair_ps / large.pair_ps == pytest.approx(32 * 64 / (64 * 128))


@pytest.mark.parametrize("batch", [1, 8, 32, 128, 256])
@pytest.mark.parametrize("context", [1_000, 4_000, 16_000])
def test_qwen_decodes_by_the_fit_of_the_source(batch, context):
    fit = 24.09 + 0.0272 * batch + 0.09114 * batch * context / 1_000
    assert StepTimes.of("qwen-2.5-32b").decode(batch, batch * context) / 1e6 == pytest.approx(fit, rel=1e-4)


def test_qwen_prefills_by_the_fit_of_the_source_with_fewer_query_heads():
    times = StepTimes.of("qwen-2.5-32b")
    for thousands in (1, 2, 4, 8):
        fit = 14.2 + 67.4 * thousands + 3.04 * thousands**2 * 40 / 64
        assert times.prefill([(0, thousands * 1_000)]) / 1e6 == pytest.approx(fit, rel=5e-3)


@given(models, pairs, st.integers(1, 128))
def test_fewer_layers_take_the_same_time_in_all(name, batch, layers):
    own, coarse = StepTimes.of(name), StepTimes.of(name, layers)
    assert abs(own.layers * own.attention(batch) - layers * coarse.attention(batch)) <= max(own.layers, layers)
    tokens = sum(computed for _, computed in batch)
    assert abs(own.layers * own.rest(tokens) - layers * coarse.rest(tokens)) <= max(own.layers, layers)
    assert own.decode(3, tokens) == coarse.decode(3, tokens)


@given(models, pairs, st.tuples(st.integers(0, 200_000), st.integers(1, 8_192)), st.integers(1, 512))
def test_more_work_never_takes_less_and_a_batch_never_more_than_its_parts(name, batch, more, sequences):
    times = StepTimes.of(name)
    assert times.attention([*batch, more]) >= times.attention(batch)
    assert times.attention([*batch, more]) <= times.attention(batch) + times.attention([more]) + 1
    assert times.rest(more[1] + 1) >= times.rest(more[1]) > 0
    assert times.decode(sequences + 1, more[0]) >= times.decode(sequences, more[0])
    assert times.decode(sequences, more[0] + 1_000) > times.decode(sequences, more[0])


@given(models)
def test_nothing_takes_no_time(name):
    times = StepTimes.of(name)
    assert times.attention([]) == times.attention([(5_000, 0)]) == times.rest(0) == times.decode(0, 0) == 0


def test_all_times_are_multiplied_by_the_compute_scale():
    own, slow = StepTimes.of("ds-27b"), StepTimes.of("ds-27b", scale=2.5)
    batch = [(32_768, 429), (10_000, 100)]
    assert slow.attention(batch) / own.attention(batch) == pytest.approx(2.5, rel=1e-6)
    assert slow.rest(529) / own.rest(529) == pytest.approx(2.5, rel=1e-5)
    assert slow.decode(7, 90_000) / own.decode(7, 90_000) == pytest.approx(2.5, rel=1e-6)


def test_what_lies_outside_the_table_is_prolonged_and_said():
    times = StepTimes.of("ds-660b")
    step = times.rest(1_024) - times.rest(1_023)
    assert times.rest(3_024) == pytest.approx(times.rest(1_024) + 2_000 * step, rel=1e-3)
    assert times.extrapolated(1_025)
    assert not times.extrapolated(1_024)


def test_one_gpu_of_a_busy_group_prefills_about_as_fast_as_published():
    # DeepSeek's H800 node, open-infra-index day 6 (serving 5.4): 73.7 k tokens/s in of which 56.3 % are hits, so about
    # 4,000 computed tokens a second and GPU, at contexts of 5 K. Oracle of DualPath's Fig. 7 (660B, 64K, 4,096 agents)
    # leaves at most 234 ms a turn and GPU.
    times = StepTimes.of("ds-660b")
    batch = [(4_000, 1_024)] * 4
    assert 0.6 < 4_096 / (times.prefill(batch) / 1e9) / 4_000 < 1.2
    assert 0.6 < times.prefill([(32_721, 429)] * 5) / 5 / 234e6 < 1.0


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("layers = 30", "layer = 30", "unknown field `layer`"),
        ("token_ns = 219.2", "token_ns = -1.0", "cached_floor_ms not below floor_ms"),
        ("sequences = [1, 2,", "sequences = [2, 1,", "decode.sequences"),
        ("ms = [0.0619,", "ms = [9.0619,", "rest.tokens needs as many positive milliseconds"),
    ],
)
def test_a_bad_profile_is_named_with_its_fault(tmp_path, old, new, fault):
    text = (FOLDER / "ds-27b.toml").read_text()
    assert old in text
    (tmp_path / "ds-27b.toml").write_text(text.replace(old, new))
    with pytest.raises(ProfileError, match=r"ds-27b\.toml.*" + fault):
        read_step_profile("ds-27b", tmp_path)


def test_a_missing_or_garbled_profile_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"ds-27b\.toml: No such file"):
        read_step_profile("ds-27b", tmp_path)
    shutil.copy(FOLDER / "ds-27b.toml", tmp_path / "ds-27b.toml")
    (tmp_path / "ds-27b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match=r"ds-27b\.toml: 'utf-8'"):
        read_step_profile("ds-27b", tmp_path)
