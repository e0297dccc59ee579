"""What the emulated models say: a Markov model over the tokens of a bundled text. Synthetic, and labelled so.

Two tokens of context where the text continued them in more than one way, else one, else the beginning of some
paragraph. It stands for a real model's logits: deterministic, quick, and with real token boundaries. It knows
nothing of time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from testbed.serving.sampling import Distribution, Nucleus, draw, nucleus, ranked, uniform_at
from testbed.serving.tokens import Vocabulary

TEXTS = Path(__file__).resolve().parents[2] / "fixtures" / "text"
"""Where the bundled texts lie (public domain and our own, see its README)."""

_CACHE_LIMIT = 50_000


def bundled_text(folder: Path = TEXTS) -> str:
    """All bundled texts, one paragraph a line (read at construction time, outside machines)."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt")))


class TextModel:
    """Next-token distributions learnt from paragraphs."""

    synthetic = True

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        """Learns from `text`, one paragraph a line. Raises ValueError if it has no paragraph."""
        self.eos = vocabulary.eos
        after_two: dict[tuple[int, int], dict[int, int]] = {}
        after_one: dict[int, dict[int, int]] = {}
        beginnings: dict[int, int] = {}
        before, last = self.eos, self.eos
        for paragraph in filter(None, map(str.strip, text.splitlines())):
            tokens = vocabulary.encode(paragraph + "\n")
            _count(beginnings, tokens[0])
            for token in tokens:
                _count(after_two.setdefault((before, last), {}), token)
                _count(after_one.setdefault(last, {}), token)
                before, last = last, token
            _count(after_two.setdefault((before, last), {}), self.eos)
            _count(after_one.setdefault(last, {}), self.eos)
        if not beginnings:
            raise ValueError("the text has no paragraph to learn from")
        self._after_two, self._after_one = after_two, after_one
        self._beginnings = ranked(beginnings)
        self._distributions: dict[tuple[int, int, bool], Distribution] = {}
        self._nuclei: dict[tuple[int, int, bool, float, float], Nucleus] = {}

    def distribution(self, before: int, last: int, *, ignore_eos: bool) -> Distribution:
        """What may follow the tokens `before`, `last`. With `ignore_eos` the end of sequence is not among it."""
        key = (before, last, ignore_eos)
        known = self._distributions.get(key)
        if known is None:
            known = self._remember(key, self._back_off(before, last, ignore_eos=ignore_eos))
        return known

    def next_token(
        self, tail: tuple[int, int], *, seed: int, place: int, temperature: float, top_p: float, ignore_eos: bool
    ) -> int:
        """Draws the token at `place` of an answer that goes on from `tail`."""
        key = (*tail, ignore_eos, temperature, top_p)
        choice = self._nuclei.get(key)
        if choice is None:
            if len(self._nuclei) >= _CACHE_LIMIT:
                self._nuclei.clear()
            choice = nucleus(self.distribution(*tail, ignore_eos=ignore_eos), temperature, top_p)
            self._nuclei[key] = choice
        return draw(choice, uniform_at(seed, place))

    def _remember(self, key: tuple[int, int, bool], found: Distribution) -> Distribution:
        if len(self._distributions) >= _CACHE_LIMIT:
            self._distributions.clear()
        self._distributions[key] = found
        return found

    def _back_off(self, before: int, last: int, *, ignore_eos: bool) -> Distribution:
        for counts, fewest in ((self._after_two.get((before, last)), 2), (self._after_one.get(last), 1)):
            if counts is None:
                continue
            allowed = {token: count for token, count in counts.items() if not (ignore_eos and token == self.eos)}
            if len(allowed) >= fewest:
                return ranked(allowed)
        return self._beginnings


def _count(counts: dict[int, int], token: int) -> None:
    counts[token] = counts.get(token, 0) + 1


@cache
def bundled_text_model(vocabulary: Vocabulary) -> TextModel:
    """The text model of the bundled texts (0.1 s with the DeepSeek vocabulary, once for each)."""
    return TextModel(bundled_text(), vocabulary)
