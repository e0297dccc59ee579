"""Packing of a prefill batch: the paper's pseudo-code with a search by counting, and compiled against plain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.batch_quota import NO_QUOTA, pack
from testbed.serving.step_times import AttentionCost, StepTimes
from tests.testbed.dualpath.compiled import both_agree

PS = 1_000


def by_the_paper(turns, attention, quota, chunk, most):
    """Design 1.5, line by line: `attention` of the whole batch, the chunk found by trying every one."""
    batch = []
    for cached, bsz in turns:
        room = most - sum(tokens for _, tokens in batch)
        if bsz <= room and attention([*batch, (cached, bsz)]) <= quota:
            batch.append((cached, bsz))
            continue
        part = max(b for b in range(min(bsz, room) + 1) if attention([*batch, (cached, b)]) <= quota)
        part -= part % chunk
        if not batch:
            part = part or min(chunk, bsz)
        if part:
            batch.append((cached, part))
        break
    return [tokens for _, tokens in batch]


def attention_of(token, pair):
    """Twice the closed form, in whole numbers."""
    return lambda batch: sum(b * (2 * token + pair * (2 * c + b)) for c, b in batch)


turns = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), max_size=10)


@settings(max_examples=300, deadline=None)
@given(turns, st.integers(0, 50), st.integers(0, 9), st.integers(0, 60_000), st.integers(1, 16), st.integers(1, 150))
def test_plain_compiled_and_the_papers_words_agree(queue, token, pair, quota, chunk, most):
    expected = by_the_paper(queue, attention_of(token, pair), 2 * quota, chunk, most)
    cached, remaining = [c for c, _ in queue], [b for _, b in queue]
    count, after = both_agree(pack, cached, remaining, token, pair, quota, chunk, most, [0] * len(queue))
    assert after[7][:count] == expected
    assert after[7][count:] == [0] * (len(queue) - count)


def test_without_a_quota_only_the_batchs_tokens_limit_it():
    count, after = both_agree(pack, [9, 9, 9], [50, 50, 50], 7, 7, NO_QUOTA, 16, 120, [0] * 3)
    assert (count, after[7]) == (3, [50, 50, 16])


def test_a_turn_larger_than_any_quota_still_moves_by_one_chunk():
    count, after = both_agree(pack, [10**6, 0], [500, 10], 10**9, 10**6, 1, 64, 8_192, [0, 0])
    assert (count, after[7]) == (1, [64, 0])


def test_a_last_part_smaller_than_a_chunk_is_taken_whole():
    count, after = both_agree(pack, [640], [5], 10**9, 10**6, 1, 64, 8_192, [0])
    assert (count, after[7]) == (1, [5])


@pytest.mark.parametrize("model", ["ds-27b", "ds-660b", "qwen-2.5-32b"])
def test_a_batch_of_the_papers_trace_stays_within_300_ms_by_the_compute_model(model):
    times = StepTimes.of(model)
    cost, quota = times.attention_cost, 300_000_000 * PS
    cached, remaining = [32_721] * 60, [429] * 60
    count, after = both_agree(pack, cached, remaining, cost.token, cost.pair, quota, 64, 8_192, [0] * 60)
    batch = list(zip(cached, after[7][:count], strict=False))
    assert AttentionCost.of(cost, batch) <= quota
    assert sum(after[7]) > 8_192 - 64 or AttentionCost.of(cost, [*batch[:-1], (32_721, batch[-1][1] + 64)]) > quota
    assert count >= 4


def test_packing_does_not_overflow_at_the_ends_of_what_parameters_allow():
    cost = StepTimes.of("qwen-2.5-32b", scale=1_000.0).attention_cost
    count, after = both_agree(pack, [1_000_000], [1_000_000], cost.token, cost.pair, 10**15, 64, 1_000_000, [0])
    assert count == 1
    assert cost.of([(1_000_000, after[7][0])]) <= max(10**15, cost.of([(1_000_000, 64)]))
