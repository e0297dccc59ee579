import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.stop_strings import StopStrings


def run(stops, texts):
    matcher = StopStrings(stops)
    sent = []
    for text in texts:
        sent.append(matcher.feed(text))
        if matcher.matched:
            break
    else:
        sent.append(matcher.flush())
    return sent, matcher.matched


def test_without_stops_every_text_goes_straight_through():
    assert run((), ["a", "", "b"]) == (["a", "", "b", ""], None)


def test_beginning_of_a_stop_is_held_until_it_is_known():
    assert run(("\n\n",), ["a\n", "b"]) == (["a", "\nb", ""], None)
    assert run(("\n\n",), ["a\n", "\nb"]) == (["a", ""], "\n\n")


def test_held_text_comes_out_at_the_end():
    assert run(("END",), ["x E", "N"]) == (["x ", "", "EN"], None)


def test_the_stop_that_is_complete_first_wins():
    assert run(("abcd", "bc"), ["abcd"]) == (["a"], "bc")
    assert run(("abc", "bc"), ["xabc"]) == (["x"], "abc")


def test_empty_stop_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopStrings(("a", ""))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_the_answer_does_not_depend_on_the_cuts(stops, texts):
    whole = "".join(texts)
    sent, matched = run(stops, texts)
    by_letter, matched_by_letter = run(stops, list(whole))
    assert ("".join(sent), matched) == ("".join(by_letter), matched_by_letter)
    if matched is None:
        assert "".join(sent) == whole
        assert not any(stop in whole for stop in stops)
    else:
        assert not any(stop in "".join(sent) for stop in stops)
        assert whole.startswith("".join(sent) + matched)
