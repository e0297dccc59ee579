"""Couriers and mail back to back, on a wire of a few lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.baselines.host_messages import AddRequest, RequestsFailed, StepOutput, WithdrawRequest
from testbed.baselines.placed_wires import FRAME_BYTES, Courier, Mail
from testbed.events.schema import VerbFailed
from testbed.machine import (
    Completion,
    CompletionStatus,
    Deliver,
    Effects,
    Emit,
    Message,
    Received,
    Send,
    UnexpectedMessage,
)
from testbed.serving.device_messages import LaunchStep, StepDone, StepFailed
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import Graph
from testbed.serving.requests import Sampling

LANE = Lane(7, 3, 400, (5, 9), 0.5, 0.9, 11, ignore_eos=False)
ADD = AddRequest(4, tuple(range(1, 301)), 16, Sampling(0.5, 0.25, 9, ignore_eos=True))
MESSAGES: list[Message] = [
    ADD,
    WithdrawRequest(4),
    StepOutput((1, 2), (10, 11), (None, "stop")),
    RequestsFailed((4,), "unavailable", "gone"),
    LaunchStep(8, Graph("decode", 128, 8192), (LANE,) * 128),
    StepDone(8, (1, 2, 3)),
    StepFailed(8, "lost", "gone"),
]


def carried(courier: Courier, mail: Mail, message: Message) -> list[Deliver]:
    """What comes out at the other end."""
    out: list[Deliver] = []
    for effect in courier.receive(0, message):
        assert isinstance(effect, Send)
        assert len(effect.data) <= FRAME_BYTES + 1
        out += [one for one in mail.receive(0, Received("here", effect.data)) if isinstance(one, Deliver)]
        assert courier.receive(0, Completion(effect.ticket)) == ()
    assert courier.in_flight == 0
    return out


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_goes_in_comes_out_once_and_whole(message: Message) -> None:
    assert carried(Courier("gpu0", "core", tickets=1 << 40), Mail(), message) == [Deliver("core", message)]


def test_a_large_launch_goes_in_frames_and_peers_do_not_mix() -> None:
    one, other, mail = Courier("g", "device", tickets=0), Courier("g", "core", tickets=1 << 40), Mail()
    frames = [effect.data for effect in one.receive(0, MESSAGES[4]) if isinstance(effect, Send)]
    assert len(frames) > 1
    for frame in frames[:-1]:
        assert mail.receive(0, Received("a", frame)) == ()
    (small,) = [effect.data for effect in other.receive(0, ADD) if isinstance(effect, Send)]
    assert mail.receive(0, Received("b", small)) == (Deliver("core", ADD),)
    assert mail.receive(0, Received("a", frames[-1])) == (Deliver("device", MESSAGES[4]),)


@given(prompt=st.lists(st.integers(0, 200_000), min_size=1, max_size=40))
def test_a_written_prompt_travels_as_its_length_and_its_end(prompt: list[int]) -> None:
    added = AddRequest(1, tuple(prompt), 5, Sampling())
    (delivered,) = carried(Courier("g", "core", tickets=0, written=True), Mail(), added)
    got = delivered.message
    assert isinstance(got, AddRequest)
    assert (len(got.prompt), got.prompt[-2:], got.max_tokens) == (len(prompt), tuple(prompt[-2:]), 5)
    long = AddRequest(1, tuple(prompt) * 500, 5, Sampling())
    (frame,) = Courier("g", "core", tickets=0, written=True).receive(0, long)
    assert isinstance(frame, Send)
    assert len(frame.data) < 120


def test_a_request_that_could_not_be_sent_is_told_to_the_api_and_other_losses_are_logged() -> None:
    courier = Courier("gpu0", "core", tickets=0, api="api")

    def lost(message: Message) -> Effects:
        (frame,) = courier.receive(0, message)
        assert isinstance(frame, Send)
        return courier.receive(0, Completion(frame.ticket, CompletionStatus.RETRY_EXCEEDED))

    failed = Emit(VerbFailed("send", "gpu0", "retry_exceeded"))
    told = Deliver("api", RequestsFailed((4,), "unavailable", "gpu0 cannot be reached"))
    assert lost(ADD) == (failed, told)
    assert lost(StepDone(1, (2,))) == (failed,)


def test_nobody_elses_messages() -> None:
    with pytest.raises(UnexpectedMessage):
        Courier("gpu0", "core", tickets=0).receive(0, Completion(99))
    with pytest.raises(UnexpectedMessage):
        Mail().receive(0, ADD)
    assert Mail().deadline() is None
    assert Courier("g", "c", tickets=0).wake(0) == ()
