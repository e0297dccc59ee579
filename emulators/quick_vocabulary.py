"""The bundled vocabulary, quick enough for a DPU's process: the same ids, with what was split before remembered.

The package's tokeniser is Python and takes about 10 us a token, most of it for splitting; Blink's on a BlueField
takes a hundredth of that (papers/blink summary, tokeniser), and a prompt of 2,000 tokens would hold the whole event
loop up for 20 ms. In that tokeniser a space after a character that is none always begins a new piece: every rule
that takes white space takes its whole run from the beginning, or one character before letters, and no added token
holds a space. So a text may be cut there, and the ids of each cut remembered.

It may not know who asks.
"""

from __future__ import annotations

import re

from testbed.serving.text_model import bundled_text
from testbed.serving.tokens import DeepSeekVocabulary, deepseek_vocabulary

MOST_REMEMBERED = 200_000
LONGEST_REMEMBERED = 64
"""Characters of a cut that is remembered; longer ones are rare and would fill memory."""

_CUT = re.compile(r"(?<=\S)(?= )")


class QuickVocabulary:
    """A `Vocabulary` with the ids of `DeepSeekVocabulary`."""

    name = DeepSeekVocabulary.name

    def __init__(self, slow: DeepSeekVocabulary) -> None:
        self._slow = slow
        self._remembered: dict[str, tuple[int, ...]] = {}
        self.size = slow.size
        self.eos = slow.eos
        self.longest_token_bytes = slow.longest_token_bytes
        self.token_bytes = slow.token_bytes

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without a begin-of-sentence token."""
        ids: list[int] = []
        remembered = self._remembered
        for cut in _CUT.split(text):
            known = remembered.get(cut)
            ids.extend(known if known is not None else self._learn(cut))
        return ids

    def _learn(self, cut: str) -> tuple[int, ...]:
        ids = tuple(self._slow.encode(cut))
        if len(cut) <= LONGEST_REMEMBERED:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[cut] = ids
        return ids


def quick_vocabulary() -> QuickVocabulary:
    """Loads the vocabulary and has it see the bundled text once, whose words most prompts are made of (about 2 s)."""
    vocabulary = QuickVocabulary(deepseek_vocabulary())
    vocabulary.encode(bundled_text())
    return vocabulary
