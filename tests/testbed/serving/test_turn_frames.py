"""Frames of turns: whatever pieces arrive, and what is no frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.turn_frames import LARGEST_FRAME, BadFrame, FrameReader, TurnMessage, frame
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed

RUNS = st.lists(
    st.builds(TokenRun, st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(1, 2**20)), min_size=1, max_size=4
).map(tuple)
NAMES = st.text(max_size=12)
MESSAGES: st.SearchStrategy[TurnMessage] = st.one_of(
    st.builds(
        SubmitTurn,
        st.builds(Turn, NAMES, st.integers(0, 9999), st.integers(0, 999), RUNS, st.integers(0, 2**20), RUNS),
    ),
    st.builds(TurnAdvanced, NAMES, st.integers(0, 300), st.booleans()),
    st.builds(TurnFailed, NAMES, st.text(max_size=40)),
)


@given(st.lists(MESSAGES, max_size=8), st.integers(1, 50))
def test_messages_come_out_whole_and_in_order_wherever_the_pieces_end(told: list[TurnMessage], piece: int) -> None:
    data = b"".join(frame(message) for message in told)
    reader = FrameReader()
    read: list[TurnMessage] = []
    for place in range(0, len(data), piece):
        read += reader.take(data[place : place + piece])
    assert read == told


@pytest.mark.parametrize(
    "data",
    [
        (LARGEST_FRAME + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x01\xc0",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x00",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        FrameReader().take(data)


def test_a_message_that_fits_no_frame_is_not_sent() -> None:
    with pytest.raises(ValueError, match="at most"):
        frame(TurnFailed("x", "y" * LARGEST_FRAME))
