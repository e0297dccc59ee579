"""JSON in ASCII only, on one line: what an event stream can carry without splitting (design serving.md §4.2).

U+2028, U+2029 and every other character beyond ASCII are escaped, since some clients split lines at them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)

text: Callable[[str], str] = encode_basestring_ascii
"""A JSON string literal of a text; the C function of the standard library, about 0.2 us a token."""


def encode(value: Any) -> bytes:
    """`value` as compact ASCII JSON. Raises ValueError for NaN and infinities, which JSON has not."""
    return _encoder.encode(value).encode("ascii")
