from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed.serving.deepseek import DeepSeekVocabulary
from testbed.serving.text_model import bundled_text

GOLDEN = json.loads((Path(__file__).parent / "deepseek_golden.json").read_text())["samples"]


def test_ids_are_those_of_the_huggingface_library(deepseek: DeepSeekVocabulary) -> None:
    wrong = [sample["text"] for sample in GOLDEN if deepseek.encode(sample["text"]) != sample["ids"]]
    assert not wrong


def test_a_second_time_the_remembered_pieces_give_the_same_ids(deepseek: DeepSeekVocabulary) -> None:
    text = bundled_text()[:5_000]
    assert deepseek.encode(text) == deepseek.encode(text)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_comes_back(deepseek: DeepSeekVocabulary, text: str) -> None:
    # Hypothesis also draws literals of our own modules, and a special token that is spelt out is mute.
    assume("<｜" not in text)
    ids = deepseek.encode(text)
    assert b"".join(map(deepseek.token_bytes, ids)).decode() == text
    assert all(0 <= token < deepseek.size for token in ids)
    assert len(ids) * deepseek.longest_token_bytes >= len(text.encode())


def test_an_emoji_is_pieces_of_bytes(deepseek: DeepSeekVocabulary) -> None:
    ids = deepseek.encode("😀")
    assert len(ids) > 1
    assert b"".join(map(deepseek.token_bytes, ids)) == "😀".encode()


def test_special_tokens_have_no_text_and_added_ones_their_own(deepseek: DeepSeekVocabulary) -> None:
    (eos,) = deepseek.encode("<｜end▁of▁sentence｜>")
    assert eos == deepseek.eos
    assert deepseek.token_bytes(eos) == b""
    (think,) = deepseek.encode("<think>")
    assert deepseek.token_bytes(think) == b"<think>"


def test_lone_surrogates_become_question_marks(deepseek: DeepSeekVocabulary) -> None:
    assert deepseek.encode("a\ud800b") == deepseek.encode("a?b")


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_id_that_is_none_is_a_key_error(deepseek: DeepSeekVocabulary, token: int) -> None:
    with pytest.raises(KeyError):
        deepseek.token_bytes(token)


def test_a_word_without_end_does_not_take_for_ever(deepseek: DeepSeekVocabulary) -> None:
    text = "".join(chr(97 + (index * index * 7 + index // 3) % 26) for index in range(60_000))
    assert b"".join(map(deepseek.token_bytes, deepseek.encode(text))).decode() == text
