from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.serving.tokens import ByteVocabulary, DeepSeekVocabulary, TokenText, Vocabulary


@pytest.mark.parametrize("token", [-1, 257])
def test_the_byte_vocabulary_has_257_tokens(token: int) -> None:
    vocabulary = ByteVocabulary()
    assert vocabulary.token_bytes(256) == b""
    assert vocabulary.token_bytes(255) == b"\xff"
    with pytest.raises(KeyError):
        vocabulary.token_bytes(token)


def test_text_waits_for_the_whole_character() -> None:
    text = TokenText(ByteVocabulary())
    assert [text.push(byte) for byte in "aé🙂".encode()] == ["a", "", "é", "", "", "", "🙂"]


def test_an_emoji_of_several_tokens_comes_out_with_the_last(deepseek: DeepSeekVocabulary) -> None:
    ids = deepseek.encode("🏳️‍🌈!")
    text = TokenText(deepseek)
    pieces = [text.push(token, last=index == len(ids) - 1) for index, token in enumerate(ids)]
    assert "".join(pieces) == "🏳️‍🌈!"
    assert pieces[0] == ""


def test_what_is_still_incomplete_at_the_end_is_marked() -> None:
    text = TokenText(ByteVocabulary())
    assert text.push(0xF0) == ""
    assert text.push(0x9F, last=True) == "\ufffd"


def test_bytes_that_are_no_utf8_and_ids_that_are_none_do_no_harm() -> None:
    text = TokenText(ByteVocabulary())
    assert text.push(0xFF) == "\ufffd"
    assert text.push(999) == "\ufffd"
    assert text.push(ord("a")) == "a"


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40), cut=st.integers(0, 40))
def test_pieces_join_to_the_text_whatever_the_vocabulary(deepseek: DeepSeekVocabulary, text: str, cut: int) -> None:
    for vocabulary in (deepseek, ByteVocabulary()):
        chosen: Vocabulary = vocabulary
        ids = chosen.encode(text)
        stream = TokenText(chosen)
        before = [stream.push(token) for token in ids[:cut]]
        after = [stream.push(token) for token in ids[cut:]]
        assert "".join(before + after) == text
