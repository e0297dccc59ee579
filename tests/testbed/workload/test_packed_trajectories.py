from __future__ import annotations

import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.workload import packed_trajectories
from testbed.workload.packed_trajectories import Packed, pack, unpack
from testbed.workload.trajectories import of_lengths

LENGTHS = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 90)), min_size=1, max_size=6)


@given(st.lists(LENGTHS, max_size=4), st.lists(st.text(max_size=9), max_size=3))
def test_what_was_packed_comes_out(sessions: list[list[tuple[int, int]]], rules: list[str]) -> None:
    made = [of_lengths(number, lengths, f"s{number}") for number, lengths in enumerate(sessions)]
    text = pack(rules, made)
    assert text.isascii()
    assert unpack(text) == Packed(rules, made)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "Grüße",
        _text(b"no zlib"),
        _text(zlib.compress(b"\xc1")),
        _text(zlib.compress(msgspec.msgpack.encode([[], [3]]))),
        pack([], [of_lengths(1, [(5, 5)])])[:-8],
        _text(zlib.compress(bytes(packed_trajectories._LARGEST + 1), 1)),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="packed sessions cannot be read"):
        unpack(text)
