"""Every row of `TOKENISERS` gives the ids of Hugging Face's library (known-faults.md "API / streaming" 13, 14)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.serving.deepseek import DeepSeekVocabulary, tokenizer_json
from testbed.serving.text_model import bundled_text
from testbed.serving.tokenisers import TOKENISERS, Encode

GOLDEN = json.loads((Path(__file__).parent / "deepseek_golden.json").read_text())["samples"]
OTHERS = sorted(set(TOKENISERS) - {"huggingface"})
PIECES = (
    " ", "  ", "   ", "\n", "\r\n", "\t", " \n ", "\u3000", "\xa0", "\u2028", "\x85", "\x1c", "\x00", "123",
    "4567890", "١٢٣", "Ⅷ", "½", "²", "你好", "的世界", "日本語", "ひらがな", "カタカナ", "龥龦㐀", "한국어", "😀",
    "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "é", "e\u0301", "ß", "İ", "ﬁ",
    "don't", "I'LL", "'s", "_x", "(abc", "[a]", "--", "...", "!!!\n\n", "$$$",
    "<think>", "</think>", "<｜end▁of▁sentence｜>", "<｜end▁of", "｜", "▁", "a", " the", "The", "\u200b", "\ufeff",
    "अनुच्छेद", "العربية", "ไทย", "\U000e0001", "\uffff", "€", "“quote”", "http://a.b/c?d=e", "\n    return x\n",
    "aaaaaaaaaaaaaaaa", "xyzzy" * 9, "0" * 11, "a1b2", "Ａ", "ｱ", "〜", "・", "ー",
)  # fmt: skip
"""What tokenisers differ by: runs of blanks, digits in threes, kana beside kanji, joined emoji, added tokens."""


@pytest.fixture(scope="module")
def encoders() -> dict[str, Encode]:
    file = tokenizer_json()
    return {name: row(file) for name, row in TOKENISERS.items()}


@pytest.mark.parametrize("name", sorted(TOKENISERS))
def test_stored_ids(encoders: dict[str, Encode], name: str) -> None:
    wrong = [sample["text"] for sample in GOLDEN if encoders[name](sample["text"]) != sample["ids"]]
    assert not wrong


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=25).map("".join)))
def test_drawn_texts_give_equal_ids(encoders: dict[str, Encode], name: str, text: str) -> None:
    # Code points that no text can hold are the vocabulary's business (test_deepseek.py).
    text = text.encode("utf-8", "replace").decode()
    assert encoders[name](text) == encoders["huggingface"](text)


@pytest.mark.parametrize("name", OTHERS)
def test_a_long_corpus_of_everything_gives_equal_ids(encoders: dict[str, Encode], name: str, soak: bool) -> None:
    draw = random.Random(7)
    story = bundled_text()
    for _ in range(20_000 if soak else 1_000):
        start = draw.randrange(len(story))
        block = draw.choice((0x80, 0x250, 0x3000, 0xD800, 0x20000))
        parts = [
            story[start : start + draw.randrange(400)],
            "".join(draw.choices(PIECES, k=draw.randrange(20))),
            "".join(chr(draw.randrange(block)) for _ in range(draw.randrange(30))).encode("utf-8", "replace").decode(),
            "".join(draw.choices(" \n\t\r\x0b\x0c\u3000a1.中", k=draw.randrange(20))),
        ]  # fmt: skip
        text = "".join(draw.sample(parts, len(parts)))
        assert encoders[name](text) == encoders["huggingface"](text), text


@pytest.mark.parametrize("name", sorted(TOKENISERS))
def test_a_word_without_end_and_a_lone_surrogate(name: str) -> None:
    vocabulary = DeepSeekVocabulary(tokenizer_json(), name)
    word = "".join(chr(97 + (index * index * 7 + index // 3) % 26) for index in range(60_000))
    assert b"".join(map(vocabulary.token_bytes, vocabulary.encode(word))).decode() == word
    assert vocabulary.encode("a\ud800b") == vocabulary.encode("a?b")
