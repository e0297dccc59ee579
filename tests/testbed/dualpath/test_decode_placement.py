"""DE placement against the paper's pseudo-code, and compiled against plain."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.decode_placement import assign_groups, place
from tests.testbed.dualpath.compiled import both_agree


def phase_one(queue, sums, counted):
    """Design 1.3, phase 1."""
    out = []
    for r in queue:
        g = min(range(len(sums)), key=lambda group: (sums[group], group))
        out.append(g)
        if counted:
            sums[g] += r
    return out


def phase_two(private, need, engines, tok, seq, free_hbm, z, most):
    """Design 1.3, phase 2, line by line, on dictionaries and fractions."""
    prefix, left = [], sum(free_hbm[e] for e in engines)
    for r, blocks in zip(private, need, strict=True):
        if blocks > left:
            break
        left -= blocks
        prefix.append(r)
    watermark = Fraction(z, 100) * (sum(prefix) + sum(tok[e] for e in engines)) / len(engines)
    out = []
    for r, blocks in zip(private, need, strict=True):
        fits = [e for e in engines if free_hbm[e] >= blocks and seq[e] < most]
        if not fits:
            break
        low = [e for e in fits if tok[e] + r <= watermark]
        best = min(low, key=lambda e: (seq[e], e)) if low else min(fits, key=lambda e: (tok[e], e))
        out.append(best)
        tok[best] += r
        seq[best] += 1
        free_hbm[best] -= blocks
    return out


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=20), st.lists(st.integers(0, 60), min_size=1, max_size=5), st.booleans())
def test_groups_plain_compiled_and_the_papers_words_agree(lengths, sums, counted):
    expected = phase_one(lengths, list(sums), counted)
    _, after = both_agree(assign_groups, lengths, sums, counted, [-1] * len(lengths))
    assert after[3] == expected


@st.composite
def cases(draw):
    engines = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(1, 40), max_size=16))
    needs = draw(st.lists(st.integers(1, 6), min_size=len(lengths), max_size=len(lengths)))
    members = draw(st.lists(st.sampled_from(range(engines)), min_size=1, unique=True).map(sorted))
    tokens = draw(st.lists(st.integers(0, 80), min_size=engines, max_size=engines))
    sequences = draw(st.lists(st.integers(0, 5), min_size=engines, max_size=engines))
    free = draw(st.lists(st.integers(0, 15), min_size=engines, max_size=engines))
    return lengths, needs, members, tokens, sequences, free, draw(st.integers(100, 150)), draw(st.integers(1, 8))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_engines_plain_compiled_and_the_papers_words_agree(case):
    lengths, needs, members, tokens, sequences, free, z, most = case
    tok, seq, hbm = (dict(enumerate(values)) for values in (tokens, sequences, free))
    expected = phase_two(lengths, needs, members, tok, seq, hbm, z, most)
    placed, after = both_agree(place, *case, [-1] * len(lengths))
    assert after[8] == expected + [-1] * (len(lengths) - placed)
    assert after[3:6] == [list(tok.values()), list(seq.values()), list(hbm.values())]
    assert min(after[5]) >= 0


def test_a_burst_is_spread_over_groups_only_if_waiting_turns_count():
    _, after = both_agree(assign_groups, [10, 10, 10, 10], [0, 0], True, [-1] * 4)
    assert after[3] == [0, 1, 0, 1]
    _, after = both_agree(assign_groups, [10, 10, 10, 10], [0, 0], False, [-1] * 4)
    assert after[3] == [0, 0, 0, 0]


def test_below_the_watermark_fewest_sequences_win_above_it_fewest_tokens():
    # Z = 1.05 × (100 + 20 + 10) / 2 = 68.25: engine 1 would stay below it, engine 0 not.
    _, after = both_agree(place, [10], [1], [0, 1], [100, 20], [1, 9], [5, 5], 105, 99, [-1])
    assert after[8] == [1]
    # Both below: the one with fewer sequences, though it has more tokens.
    _, after = both_agree(place, [10], [1], [0, 1], [60, 50], [1, 9], [5, 5], 150, 99, [-1])
    assert after[8] == [0]
    # Neither below, since the turn is long: fewest tokens, though it has more sequences.
    _, after = both_agree(place, [500], [1], [0, 1], [60, 50], [1, 9], [5, 5], 105, 99, [-1])
    assert after[8] == [1]


def test_exactly_at_the_watermark_is_below_it_without_rounding():
    # Z = 1.05 × 200 / 2 = 105 exactly; tok + len = 105.
    _, after = both_agree(place, [15], [1], [0, 1], [90, 95], [7, 1], [5, 5], 105, 99, [-1])
    assert after[8] == [0]


def test_a_turn_without_room_ends_the_fetch_though_later_ones_would_fit():
    placed, after = both_agree(place, [10, 10, 10], [2, 9, 1], [0, 1], [0, 0], [0, 0], [3, 3], 105, 99, [-1] * 3)
    assert (placed, after[8]) == (1, [0, -1, -1])


def test_the_watermarks_prefix_ignores_fragmentation_but_an_engine_must_have_room():
    # 4 blocks fit into 3 + 3 in all, yet into no engine.
    placed, _ = both_agree(place, [10], [4], [0, 1], [0, 0], [0, 0], [3, 3], 105, 99, [-1])
    assert placed == 0
