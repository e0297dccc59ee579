import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.quick_vocabulary import QuickVocabulary
from testbed.serving.text_model import bundled_text

PIECES = [
    " ", "  ", "\n", "\r\n", "\t", "a", "Alice", "don't", "12345", "½", "٣", "é", "e\u0301", "日本", "ひら", "カナ",
    "🙂", "…", ",", "!?", "<｜User｜>", "<｜end▁of▁sentence｜>", "<", "｜", "\u00a0", "\u2028", "\x00", "\x85",
    "_", "$", "ﬁ", "\ud800",
]  # fmt: skip


@pytest.fixture(scope="module")
def quick(vocabulary):
    return QuickVocabulary(vocabulary)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_same_ids_for_pieces_of_every_kind(quick, vocabulary, text):
    assert quick.encode(text) == vocabulary.encode(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_same_ids_for_any_text(quick, vocabulary, text):
    assert quick.encode(text) == vocabulary.encode(text)


def test_same_ids_for_the_bundled_text_also_when_remembered(quick, vocabulary):
    text = bundled_text()[:20_000]
    expected = vocabulary.encode(text)
    assert quick.encode(text) == expected
    assert quick.encode(text) == expected


def test_no_added_token_holds_a_space(vocabulary):
    assert not any(" " in added.content for added in vocabulary._tokenizer.added_tokens.values())


def test_memory_is_bounded(vocabulary, monkeypatch):
    monkeypatch.setattr("emulators.quick_vocabulary.MOST_REMEMBERED", 3)
    quick = QuickVocabulary(vocabulary)
    text = "one two three four five six seven"
    assert quick.encode(text) == vocabulary.encode(text)
    assert len(quick._remembered) <= 3
    quick.encode("x" * 1000)
    assert "x" * 1000 not in quick._remembered


def test_the_rest_is_the_slow_ones(quick, vocabulary):
    assert (quick.size, quick.eos, quick.longest_token_bytes) == (
        vocabulary.size, vocabulary.eos, vocabulary.longest_token_bytes,
    )  # fmt: skip
    assert quick.token_bytes(100) == vocabulary.token_bytes(100)
