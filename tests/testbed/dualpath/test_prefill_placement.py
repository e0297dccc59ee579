"""PE placement against the paper's pseudo-code, and compiled against plain."""

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.prefill_placement import place
from tests.testbed.dualpath.compiled import both_agree


def by_the_paper(queue, reads, group, node, tok, read_q, alpha, beta):
    """Design 1.2, line by line, on dictionaries; ties, which it leaves open, go to the shorter queue."""
    queue, assigned = list(queue), []
    while queue:
        c1 = {e for e in group if tok[e] > beta}
        c2 = {e for e in group if tok[e] <= beta and read_q[node[e]] <= alpha}
        c3 = {e for e in group if tok[e] <= beta and read_q[node[e]] > alpha}
        assert c1 | c2 | c3 == set(group)
        if c2:
            best = min(sorted(c2), key=lambda e: (tok[e], read_q[node[e]]))
        elif c3:
            best = min(sorted(c3), key=lambda e: (tok[e], read_q[node[e]]))
        else:
            break
        r = queue.pop(0)
        tok[best] += r
        read_q[node[best]] += reads[len(assigned)]
        assigned.append(best)
    return assigned


@st.composite
def cases(draw):
    nodes = draw(st.integers(1, 4))
    per_node = draw(st.integers(1, 4))
    engines = nodes * per_node
    small = st.integers(0, 12)
    lengths = draw(st.lists(st.integers(1, 8), max_size=20))
    reads = draw(st.lists(st.integers(0, 8), min_size=len(lengths), max_size=len(lengths)))
    members = draw(st.lists(st.sampled_from(range(engines)), min_size=1, unique=True).map(sorted))
    tokens = draw(st.lists(small, min_size=engines, max_size=engines))
    queues = draw(st.lists(small, min_size=nodes, max_size=nodes))
    return lengths, reads, members, [e // per_node for e in range(engines)], tokens, queues, draw(small), draw(small)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_plain_compiled_and_the_papers_words_agree(case):
    lengths, reads, members, node_of, tokens, queues, alpha, beta = case
    tok, read_q = dict(enumerate(tokens)), dict(enumerate(queues))
    expected = by_the_paper(lengths, reads, members, dict(enumerate(node_of)), tok, read_q, alpha, beta)
    chosen = [-1] * len(lengths)
    placed, after = both_agree(place, lengths, reads, members, node_of, tokens, queues, alpha, beta, chosen)
    assert after[8][:placed] == expected
    assert after[8][placed:] == [-1] * (len(lengths) - placed)
    assert after[4] == list(tok.values())
    assert after[5] == list(read_q.values())


def test_a_short_disk_queue_comes_before_few_tokens_and_overloaded_engines_get_nothing():
    args = [[0, 1, 2], [0, 0, 1], [50, 101, 10], [5, 9], 6, 100]
    members, node_of, tokens, queues, alpha, beta = args
    _, after = both_agree(place, [10], [0], members, node_of, tokens, queues, alpha, beta, [-1])
    assert after[8] == [0]


def test_of_idle_engines_those_of_another_node_come_next_once_a_read_is_given():
    args = [[0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0], 100, 100]
    _, after = both_agree(place, [10, 10, 10, 10], [9, 9, 9, 9], *args, [-1] * 4)
    assert after[8] == [0, 2, 1, 3]
    _, after = both_agree(place, [10, 10, 10, 10], [0, 0, 0, 0], *args, [-1] * 4)
    assert after[8] == [0, 1, 2, 3]


def test_an_engine_at_exactly_beta_and_a_queue_at_exactly_alpha_still_count_as_below():
    placed, after = both_agree(place, [1, 1], [0, 0], [0], [0], [100], [6], 6, 100, [-1, -1])
    assert (placed, after[8]) == (1, [0, -1])


def test_a_turn_that_fits_nowhere_holds_up_those_behind_it():
    placed, _ = both_agree(place, [9, 1, 1], [0, 0, 0], [0, 1], [0, 0], [101, 101], [0], 5, 100, [-1, -1, -1])
    assert placed == 0


def test_classes_are_formed_anew_for_each_turn():
    # The first read makes node 0's queue long, so the second turn goes to node 1 though it has more tokens.
    _, after = both_agree(place, [1, 1], [7, 7], [0, 1], [0, 1], [0, 50], [0, 0], 6, 100, [-1, -1])
    assert after[8] == [0, 1]
    _, after = both_agree(place, [1, 1], [0, 0], [0, 1], [0, 1], [0, 50], [0, 0], 6, 100, [-1, -1])
    assert after[8] == [0, 0]
