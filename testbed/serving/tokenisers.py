"""Libraries that make ids of text by a tokenizer.json: one row each in `TOKENISERS`, the same ids from all.

Each is a library of its own and is loaded only by a process that uses it. They know the vocabulary's file and nothing
of requests and time. Ids are checked against each other on drawn texts by tests/testbed/serving/test_tokenisers.py,
and measured beside each other by `looplane bench tokenizer` (docs/models/tokenizer.md says what was found and why
these two).
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TOKENISERS", "Encode"]

Encode = Callable[[str], list[int]]
"""Text to ids. Raises UnicodeEncodeError or TypeError on lone surrogates, which UTF-8 cannot say."""


def _huggingface(tokenizer_json: bytes) -> Encode:
    """What vLLM and SGLang use."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(tokenizer_json)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _fastokens(tokenizer_json: bytes) -> Encode:
    """A flat table of merges, a compiled splitter, bounded caches, and a fixed handful of allocations a request."""
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_json_str(tokenizer_json.decode())

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


TOKENISERS: dict[str, Callable[[bytes], Encode]] = {"fastokens": _fastokens, "huggingface": _huggingface}
"""Name → what makes an encoder from the bytes of a tokenizer.json. Raises ModuleNotFoundError without the library."""
