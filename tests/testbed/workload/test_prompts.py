from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.workload.prompts import PromptSource
from testbed.workload.streams import stream

TEXT = "It was a bright cold day in the north, and the lamps\nwere lit at four; nobody had thought otherwise. "


def pieces(text: str) -> list[int]:
    """A small real tokeniser: runs of up to three letters, and every other visible character."""
    return [len(piece) for piece in re.findall(r"\s?\w{1,3}|[^\w\s]", text)]


@given(tokens=st.integers(1, 400), seed=st.integers(0, 100))
def test_a_prompt_has_about_the_wanted_tokens_and_tells_its_real_count(tokens: int, seed: int) -> None:
    prompt = PromptSource(TEXT, pieces).prompt(tokens, stream(seed, "p"))
    assert prompt.tokens == len(pieces(prompt.text))
    assert abs(prompt.tokens - tokens) <= 5 + tokens // 200, prompt
    assert prompt.text
    assert prompt.text == prompt.text.strip()


def test_a_prompt_is_an_excerpt_of_whole_words() -> None:
    prompt = PromptSource(TEXT, pieces).prompt(12, stream(1, "p"))
    assert prompt.text in TEXT * 2


def test_the_same_place_gives_the_same_prompt() -> None:
    source = PromptSource(TEXT, pieces)
    assert source.prompt(30, stream(9, "p", 4)) == PromptSource(TEXT, pieces).prompt(30, stream(9, "p", 4))


@pytest.mark.parametrize("text", ["", " \n "])
def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no words"):
        PromptSource(text, pieces)


def test_a_tokeniser_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        PromptSource(TEXT, lambda text: [])
