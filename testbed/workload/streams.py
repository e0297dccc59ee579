"""Independent streams of chance: each use of randomness has a stream of its own, named from one seed.

A draw more in one stream moves nothing in another, so the same seed gives the same prompts at every arrival rate
(known fault 17) and a row added to an experiment changes no other row's seed. Streams are named by place, never
numbered by order. The only global this file uses is the SHA-256 function.
"""

from __future__ import annotations

import hashlib
from random import Random

SEED_BITS = 63
"""Seeds fit a signed 64-bit integer, so that every reader of JSON can hold them."""


def derived_seed(seed: int, *place: str | int) -> int:
    """The seed that belongs to `place` (names and numbers, outermost first) under `seed`."""
    # The length before each part keeps ("ab", "c") apart from ("a", "bc").
    parts = [str(seed), *(f"{type(part).__name__}:{part}" for part in place)]
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - SEED_BITS)


def stream(seed: int, *place: str | int) -> Random:
    """A generator of its own for `place` under `seed`."""
    return Random(derived_seed(seed, *place))
