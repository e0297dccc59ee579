from __future__ import annotations

import struct
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.baselines.host_messages import AddRequest, RequestsFailed, StepOutput, WithdrawRequest
from testbed.baselines.placed_payload import HostRelay, PromptWriter, StoredInput
from testbed.machine import (
    Completion,
    CompletionStatus,
    Compute,
    Deliver,
    Effect,
    Message,
    RemoteAddress,
    UnexpectedMessage,
    Write,
)
from testbed.serving.device_messages import StepDone
from testbed.serving.host_work import HostWork, HostWorked
from testbed.serving.requests import Sampling
from testbed.units import MICROSECOND, MILLISECOND


def add(request: int, tokens: int = 16) -> AddRequest:
    return AddRequest(request, tuple(range(tokens)), 4, Sampling())


def writer(tokens: int = 64) -> PromptWriter:
    return PromptWriter(arena=RemoteAddress(1 << 40, 7), tokens=tokens, peer="gpu0", core="core", api="api")


def writes(effects: Iterable[Effect]) -> list[Write]:
    return [effect for effect in effects if isinstance(effect, Write)]


def delivered(effects: Iterable[Effect]) -> list[tuple[str, Message]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Deliver)]


def test_a_prompt_is_written_before_its_request_goes_on() -> None:
    machine = writer()
    (write,) = writes(machine.receive(0, add(1, 3)))
    assert (write.peer, write.remote, bytes(write.data)) == (
        "gpu0",
        RemoteAddress(1 << 40, 7),
        struct.pack("<3I", 0, 1, 2),
    )
    assert delivered(machine.receive(5, Completion(write.ticket))) == [("core", add(1, 3))]
    output = StepOutput((1,), (9,), (None,))
    assert delivered(machine.receive(9, output)) == [("api", output)]
    assert machine.held == 0


def test_prompts_wait_for_room_in_their_order() -> None:
    machine = writer(32)
    first, second = (writes(machine.receive(0, add(number)))[0] for number in (1, 2))
    assert writes(machine.receive(0, add(3))) == writes(machine.receive(0, add(4))) == []
    for write in (first, second):
        machine.receive(1, Completion(write.ticket))
    (third,) = writes(machine.receive(2, StepOutput((2,), (9,), (None,))))
    assert third.remote == second.remote
    (fourth,) = writes(machine.receive(3, RequestsFailed((1,), "unavailable", "")))
    assert delivered(machine.receive(4, Completion(fourth.ticket))) == [("core", add(4))]
    assert delivered(machine.receive(4, Completion(third.ticket))) == [("core", add(3))]


def test_who_leaves_gives_its_place_back_wherever_it_was() -> None:
    machine = writer(16)
    (write,) = writes(machine.receive(0, add(1)))
    machine.receive(0, add(2))
    assert delivered(machine.receive(1, WithdrawRequest(2))) == []  # it waited, and nobody has heard of it
    assert delivered(machine.receive(1, WithdrawRequest(1))) == []  # its WRITE is under way
    assert delivered(machine.receive(2, Completion(write.ticket))) == []
    assert machine.held == 0
    (write,) = writes(machine.receive(3, add(3)))
    machine.receive(4, Completion(write.ticket))
    assert delivered(machine.receive(5, WithdrawRequest(3))) == [("core", WithdrawRequest(3))]
    assert machine.held == 0


def test_a_write_that_fails_and_a_prompt_that_cannot_fit_are_refused() -> None:
    machine = writer(16)
    (write,) = writes(machine.receive(0, add(1)))
    ((to, failed),) = delivered(machine.receive(1, Completion(write.ticket, CompletionStatus.RETRY_EXCEEDED)))
    assert to == "api"
    assert isinstance(failed, RequestsFailed)
    assert (failed.requests, failed.reason) == ((1,), "unavailable")
    ((_, large),) = delivered(machine.receive(2, add(2, 17)))
    assert isinstance(large, RequestsFailed)
    assert large.reason == "context_length_exceeded"
    assert machine.held == 0


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    leaving=st.sets(st.integers(0, 11)),
    draw=st.randoms(use_true_random=False),
)
def test_whoever_leaves_when_prompts_never_overlap_and_nothing_is_held(
    sizes: list[int], leaving: set[int], draw: Random
) -> None:
    machine = writer(96)
    places: dict[int, range] = {}
    in_gpu: list[int] = []
    todo: list[Effect | Message] = [AddRequest(one, (one,) * size, 4, Sampling()) for one, size in enumerate(sizes)]
    todo += [WithdrawRequest(one) for one in leaving if one < len(sizes)]
    served: set[int] = set()
    while todo or in_gpu:
        if in_gpu and (not todo or draw.random() < 0.3):
            request = in_gpu.pop(draw.randrange(len(in_gpu)))
            served.add(request)
            places.pop(request, None)
            todo += machine.receive(0, StepOutput((request,), (1,), ("length",)))
            continue
        match todo.pop(0):
            case Write() as write:
                (request, *_) = struct.unpack_from("<I", write.data)
                place = range(write.remote.address, write.remote.address + len(write.data))
                assert all(place.stop <= one.start or one.stop <= place.start for one in places.values())
                places[request] = place
                told = machine.receive(0, Completion(write.ticket))
                if not delivered(told):
                    del places[request]  # its client left while it was written
                todo += told
            case Deliver(message=AddRequest(request=request)):
                in_gpu.append(request)
            case Deliver(message=WithdrawRequest(request=request)):
                places.pop(request, None)
                in_gpu = [one for one in in_gpu if one != request]
            case AddRequest() | WithdrawRequest() as message:
                todo += machine.receive(0, message)
    assert machine.held == 0
    assert set(range(len(sizes))) - leaving <= served


def work(effects: Iterable[Effect]) -> list[HostWork]:
    return [effect.work for effect in effects if isinstance(effect, Compute)]


def test_the_relay_copies_payload_and_passes_news_in_order() -> None:
    relay = HostRelay({AddRequest: "core", WithdrawRequest: "core", StepDone: "dpu0/worker"}, 20 * MICROSECOND)
    asked = [work(relay.receive(0, message))[0] for message in (add(1), WithdrawRequest(1), StepDone(3, (5,)))]
    assert [one.amount for one in asked] == [20_000, 0, 20_000]
    assert relay.held == 3
    out = [delivered(relay.receive(1, HostWorked(one.ticket, "copy", one.amount)))[0] for one in asked]
    assert out == [("core", add(1)), ("core", WithdrawRequest(1)), ("dpu0/worker", StepDone(3, (5,)))]
    with pytest.raises(UnexpectedMessage):
        relay.receive(2, StepOutput((), (), ()))


def test_storage_gives_one_input_after_another_at_its_rate() -> None:
    machine = StoredInput(work=MILLISECOND, size_bytes=1_000_000, rate_bits_per_s=8_000_000_000, core="core")
    first, second, news = (work(machine.receive(0, one))[0] for one in (add(1), add(2), WithdrawRequest(2)))
    assert (first.amount, news.amount) == (MILLISECOND, 0)
    for ticket, moment in ((first.ticket, 10), (second.ticket, 20), (news.ticket, 30)):
        machine.receive(moment, HostWorked(ticket, "fetch", 0))
    assert machine.deadline() == 10 + MILLISECOND
    assert delivered(machine.wake(10 + MILLISECOND)) == [("core", add(1))]
    assert delivered(machine.wake(10 + 2 * MILLISECOND)) == [("core", add(2)), ("core", WithdrawRequest(2))]
    assert machine.held == 0
    with pytest.raises(UnexpectedMessage):
        machine.receive(0, HostWorked(99, "fetch", 0))
