"""Prompt texts of a wanted number of tokens, cut from a bundled text. They are synthetic: excerpts, not questions.

A prompt is a run of whole words from a place that chance picks; the text is a ring, so any length can be had.
Tokenisers join and split at edges, so the count is met about, not exactly; the real count goes with the prompt.
The text and the tokeniser are handed in: this file reads no file and knows no vocabulary.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

Encode = Callable[[str], Sequence[int]]
"""A tokeniser: text to token ids."""

_WORD = re.compile(r"\s*\S+")
"""A word and the space before it, as tokenisers of the GPT-2 kind join them: counted so, words add up to a text."""
_CORRECTIONS = 4
"""How often a prompt's cut is moved towards the wanted count; more gains less than a token."""
_NEAR = 200
"""One token in so many is near enough: encoding a text once more takes longer than it is worth."""


class Prompt(NamedTuple):
    """A prompt's text and how many tokens the client's own tokeniser makes of it."""

    text: str
    tokens: int


class PromptSource:
    """Cuts prompts from `text`. Raises ValueError if the text has no word or the tokeniser no token for it."""

    def __init__(self, text: str, encode: Encode) -> None:
        # The text is a ring, so its first word has a space before it too.
        self._words: list[str] = _WORD.findall(f" {text.strip()}") if text.strip() else []
        if not self._words:
            raise ValueError("the text that prompts are cut from has no words")
        self._encode = encode
        cost = {word: len(encode(word)) for word in dict.fromkeys(self._words)}
        self._reach = list(accumulate((cost[word] for word in self._words), initial=0))
        if self._reach[-1] == 0:
            raise ValueError("the tokeniser makes no tokens of the text that prompts are cut from")

    def prompt(self, tokens: int, random: Random) -> Prompt:
        """A prompt of about `tokens` tokens (at least one word), cut at a place that `random` picks."""
        start = random.randrange(len(self._words))
        best: Prompt | None = None
        wanted = tokens
        for _ in range(_CORRECTIONS):
            text = self._cut(start, wanted)
            found = Prompt(text, len(self._encode(text)))
            if best is None or abs(found.tokens - tokens) < abs(best.tokens - tokens):
                best = found
            if abs(found.tokens - tokens) <= tokens // _NEAR:
                break
            wanted = max(1, wanted + tokens - found.tokens)
        assert best is not None
        return best

    def joined(self, front: Prompt, prompt: Prompt) -> Prompt:
        """`prompt` behind `front`, a paragraph each."""
        text = f"{front.text}\n\n{prompt.text}"
        return Prompt(text, len(self._encode(text)))

    def _cut(self, start: int, tokens: int) -> str:
        """Words from `start` on, as many as reach `tokens` when counted one by one."""
        count = len(self._words)
        rounds, rest = divmod(self._reach[start] + tokens, self._reach[-1])
        end = rounds * count + bisect_left(self._reach, rest)
        return "".join(self._words[index % count] for index in range(start, max(end, start + 1))).strip()
