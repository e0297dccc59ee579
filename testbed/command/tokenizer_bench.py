"""The two tokenisers beside each other, for `looplane bench tokenizer`: same vocabulary, same texts, one core.

Blink's mark is 8 to 19.7 times Hugging Face's `tokenizers` at 10 to 2,048 tokens (summary, Fig. 4; its tokeniser runs
on a BlueField's cores, ours and Hugging Face's on this host). Both libraries remember pieces of text, so two kinds of
text are measured: excerpts of a story, most of whose words were seen before, as those of real prompts are, and words
of drawn letters, none of which was.
"""

from __future__ import annotations

import gc
import random
import time
from functools import cache
from typing import NamedTuple

from testbed.serving.deepseek import tokenizer_json
from testbed.serving.text_model import bundled_text
from testbed.serving.tokenisers import TOKENISERS, Encode

LENGTHS = (10, 32, 128, 512, 1_024, 2_048)
"""Tokens of a text. Summary: 10 to 2,048."""
TEXTS = 60
REPEATS = 9
CORPUS = 2_000
OURS, THEIRS = "fastokens", "huggingface"


class Measured(NamedTuple):
    """One figure a text."""

    ours_us: list[float]
    theirs_us: list[float]

    @property
    def ratios(self) -> list[float]:
        """How many times as fast ours is, text by text."""
        return [theirs / ours for ours, theirs in zip(self.ours_us, self.theirs_us, strict=True)]


@cache
def seen(tokens: int) -> Measured:
    """Excerpts of about that many tokens; of each text the median of the repeats, taken in turns."""
    encoders = _encoders()
    texts = _excerpts(tokens)
    figures: dict[str, list[list[float]]] = {name: [[] for _ in texts] for name in (OURS, THEIRS)}
    gc.disable()
    try:
        for _ in range(REPEATS):
            for place, text in enumerate(texts):
                for name in (OURS, THEIRS):
                    figures[name][place].append(_microseconds(encoders[name], text))
    finally:
        gc.enable()
    middle = REPEATS // 2
    ours, theirs = ([sorted(times)[middle] for times in figures[name]] for name in (OURS, THEIRS))
    return Measured(ours, theirs)


@cache
def unseen(tokens: int) -> Measured:
    """Texts of about that many tokens whose words neither tokeniser has met; each once, since then they have."""
    encoders = _encoders()
    draw = random.Random(tokens)
    count = TOKENISERS[THEIRS](tokenizer_json())  # one of its own, so that counting teaches the measured ones nothing
    ours, theirs = [], []
    for _ in range(TEXTS):
        text = ""
        while len(count(text)) < tokens:
            text += "".join(f" {_word(draw)}" for _ in range(1 + tokens // 16))
        ours.append(_microseconds(encoders[OURS], text))
        theirs.append(_microseconds(encoders[THEIRS], text))
    return Measured(ours, theirs)


def wrong_ids() -> list[float]:
    """Texts of a drawn corpus whose ids differ: must be 0."""
    encoders = _encoders()
    draw = random.Random(3)
    story = bundled_text()
    wrong = 0
    for _ in range(CORPUS):
        start = draw.randrange(len(story))
        block = draw.choice((0x80, 0x250, 0x3000, 0xD800, 0x20000))
        strange = "".join(chr(draw.randrange(block)) for _ in range(draw.randrange(40)))
        text = story[start : start + draw.randrange(600)] + strange.encode("utf-8", "replace").decode()
        wrong += encoders[OURS](text) != encoders[THEIRS](text)
    return [float(wrong)]


@cache
def _encoders() -> dict[str, Encode]:
    file = tokenizer_json()
    encoders = {name: TOKENISERS[name](file) for name in (OURS, THEIRS)}
    for encode in encoders.values():
        encode(bundled_text())
    return encoders


def _excerpts(tokens: int) -> list[str]:
    """Texts of about `tokens` tokens, from places all over the bundled text."""
    story = bundled_text()
    encode = _encoders()[THEIRS]
    letters = len(story) / len(encode(story))
    size = min(len(story) - 1, round(tokens * letters))
    step = max(1, (len(story) - size) // TEXTS)
    return [story[place * step : place * step + size] for place in range(TEXTS)]


def _word(draw: random.Random) -> str:
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 12)))


def _microseconds(encode: Encode, text: str) -> float:
    begun = time.perf_counter_ns()
    encode(text)
    return (time.perf_counter_ns() - begun) / 1_000
