"""Token ids and text: what a vocabulary offers, two vocabularies, and text that waits for whole characters.

The vocabulary of the runs is `DeepSeekVocabulary`. A byte-level vocabulary may cut a character in pieces (an emoji
into three tokens), so a token is bytes, not text. `TokenText` holds an incomplete UTF-8 sequence back until the tokens
that complete it have come. Loading a vocabulary is done once, at construction time; machines are handed the loaded one.
"""

from __future__ import annotations

import codecs
from typing import Protocol

from testbed.serving.deepseek import DeepSeekVocabulary, deepseek_vocabulary

__all__ = ["ByteVocabulary", "DeepSeekVocabulary", "TokenText", "Vocabulary", "deepseek_vocabulary"]


class Vocabulary(Protocol):
    """Text to ids and back."""

    name: str

    def __hash__(self) -> int:
        """By identity: what is made of a vocabulary is made once for each."""
        ...

    @property
    def size(self) -> int:
        """Ids run from 0 to `size` - 1."""
        ...

    @property
    def eos(self) -> int:
        """Id of the end-of-sequence token."""
        ...

    @property
    def longest_token_bytes(self) -> int:
        """Bytes of the longest token: a text of n bytes has at least n / this many tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of `text`. Lone surrogates, which UTF-8 cannot say, become question marks."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text; empty for special tokens. Raises KeyError for an id that is none."""
        ...


class ByteVocabulary:
    """One token a byte, and the end of sequence: small, exact, for tests and for labs about UTF-8."""

    name = "bytes"
    size: int = 257
    eos: int = 256
    longest_token_bytes: int = 1

    def encode(self, text: str) -> list[int]:
        """The bytes of the text."""
        return list(text.encode("utf-8", "replace"))

    def token_bytes(self, token: int) -> bytes:
        """The byte."""
        if not 0 <= token < self.size:
            raise KeyError(token)
        return b"" if token == self.eos else bytes((token,))


class TokenText:
    """The text of one answer as its tokens come."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int, *, last: bool = False) -> str:
        """Text that is complete with this token; empty while a character is incomplete.

        With `last`, what is still incomplete comes out as U+FFFD. An id that the vocabulary does not have is U+FFFD.
        """
        try:
            piece = self._vocabulary.token_bytes(token)
        except KeyError:
            piece = "\ufffd".encode()
        return self._decoder.decode(piece, last)
