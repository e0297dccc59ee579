"""Frames between machines over a socket: whole however they come, kept where the peer is slow, refused where broken."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulators.message_stream import MOST_UNSENT, Codec, MessageStream, StreamLost
from testbed.baselines import host_messages
from testbed.baselines.host_messages import StepOutput, WithdrawRequest

CODEC = Codec(host_messages.encode, host_messages.decode)
NAMES = st.sampled_from(["api", "core", "worker", "größer"])
MESSAGES = st.builds(WithdrawRequest, st.integers(0, 2**40)) | st.builds(
    lambda tokens: StepOutput(tuple(range(len(tokens))), tuple(tokens), (None,) * len(tokens)),
    st.lists(st.integers(0, 130_000), max_size=50),
)


def ends():
    one, other = socket.socketpair()
    return MessageStream("one", one, CODEC), other


@given(st.lists(st.tuples(NAMES, MESSAGES), max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_messages_come_whole_and_in_order_however_the_bytes_come(messages, cuts):
    sender, raw = ends()
    receiver, feed = ends()
    for name, message in messages:
        sender.send(name, message)
    sender.close()
    data = b""
    while piece := raw.recv(1 << 16):
        data += piece
    got = []
    place = 0
    for cut in [*cuts, len(data)]:
        feed.sendall(data[place : place + cut])
        place += cut
        got += receiver.receive()
    assert got == messages
    for end in (raw, receiver, feed):
        end.close()


def test_what_the_socket_does_not_take_is_kept_and_sent_later():
    sender, raw = ends()
    receiver = MessageStream("two", raw, CODEC)
    big = StepOutput(tuple(range(100_000)), (7,) * 100_000, (None,) * 100_000)
    for _ in range(3):
        sender.send("api", big)
    assert sender.unsent
    got = []
    while sender.unsent or len(got) < 3:
        got += receiver.receive()
        sender.flush()
    assert got == [("api", big)] * 3
    sender.close()
    receiver.close()


def test_the_last_messages_of_a_peer_come_before_the_news_of_its_end():
    sender, raw = ends()
    receiver = MessageStream("process core", raw, CODEC)
    sender.send("api", WithdrawRequest(3))
    sender.close()
    coming = receiver.receive()
    assert next(coming) == ("api", WithdrawRequest(3))
    with pytest.raises(StreamLost, match="process core has ended"):
        next(coming)
    receiver.close()


def test_a_peer_that_is_gone_is_lost_when_something_is_sent_to_it():
    sender, raw = ends()
    raw.close()
    with pytest.raises(StreamLost, match="one"):
        sender.send("api", WithdrawRequest(1))
    sender.close()


@pytest.mark.parametrize("length", [0, 1 << 31])
def test_what_is_no_frame_is_refused(length):
    receiver, raw = ends()
    raw.sendall(length.to_bytes(4, "little") + b"xxxx")
    with pytest.raises(StreamLost, match=f"a frame of {length} bytes"):
        list(receiver.receive())
    receiver.close()
    raw.close()


def test_a_peer_that_reads_nothing_is_cut_off_before_memory_is_full():
    sender, raw = ends()
    sender.unsent += bytes(MOST_UNSENT + (1 << 20))
    with pytest.raises(StreamLost, match="unread"):
        sender.send("api", WithdrawRequest(1))
    sender.close()
    raw.close()
