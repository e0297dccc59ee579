from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from testbed.blink.ring import FinishReason, RingView, pack_progress, tokens_from
from testbed.blink.slots import SlotState, incarnation_of, pack, state_of
from testbed.events.schema import (
    GraphSelected,
    PromptWritten,
    ReaderMeasured,
    RequestAbandoned,
    RequestArrived,
    RequestRefused,
    RequestServed,
    RequestTokenised,
    SlotFound,
    TokensRead,
    VerbFailed,
)
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    MachineError,
    Message,
    Read,
    UnexpectedMessage,
    Verb,
    Write,
)
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import Mischief, World, small

GONE = CompletionStatus.RETRY_EXCEEDED


@pytest.mark.parametrize(
    ("how", "reason", "detail"),
    [
        ({"max_tokens": 0}, "invalid_request", "max_tokens must be at least 1, not 0"),
        ({"max_tokens": -3}, "invalid_request", "max_tokens"),
        ({"temperature": -0.1}, "invalid_request", "temperature must be 0 to 100, not -0.1"),
        ({"temperature": float("nan")}, "invalid_request", "temperature"),
        ({"temperature": float("inf")}, "invalid_request", "temperature"),
        ({"top_p": 0.0}, "invalid_request", "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "invalid_request", "top_p"),
        ({"top_p": float("nan")}, "invalid_request", "top_p"),
        ({"top_p": 1e-300}, "invalid_request", "top_p must be at least 1e-45 (it is carried as a 32-bit float)"),
        ({"prompt_ids": (1, 257)}, "invalid_request", "there is no token 257"),
        ({"prompt_ids": (1, -1)}, "invalid_request", "there is no token -1"),
        ({"prompt_ids": (1, 1 << 70)}, "invalid_request", f"there is no token {1 << 70}"),
        ({"prompt_ids": (1,) * 257}, "context_length_exceeded", "257 tokens of prompt"),
        ({"prompt_ids": (1,) * 250, "max_tokens": 7}, "context_length_exceeded", "250 tokens of prompt and 7 tokens"),
        ({"prompt": ""}, "invalid_request", "the prompt is empty"),
        ({"prompt": "x" * 300}, "context_length_exceeded", "300 characters"),
        ({"prompt": "x" * 250, "max_tokens": 7}, "context_length_exceeded", "250 tokens of prompt and 7 tokens"),
        ({"prompt": "x", "max_tokens": 256}, "context_length_exceeded", "256 tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(how: dict[str, Any], reason: str, detail: str) -> None:
    world = World()
    world.submit("bad", **how)
    world.submit("good")
    world.settle()
    refused = world.refusal("bad")
    assert refused.reason == reason
    assert detail in refused.detail
    assert [event.name for event in world.of(RequestRefused)] == ["bad"]
    assert len(world.tokens("good")) == 4
    world.assert_nothing_is_held()


def test_prompt_and_answer_may_fill_the_context_exactly() -> None:
    world = World()
    world.submit("full", "x" * 250, max_tokens=6)
    world.settle()
    assert len(world.tokens("full")) == 6


def test_the_smallest_top_p_and_temperature_are_served() -> None:
    world = World()
    world.submit("a", top_p=1e-45, temperature=1.0)
    world.submit("b", top_p=1.0, temperature=1e-300)
    world.settle()
    assert len(world.tokens("a")) == len(world.tokens("b")) == 4


def test_a_prompt_of_token_ids_reaches_the_gpu_as_it_is() -> None:
    """Whatever its text would be: here the ids are not UTF-8, and the end of sequence has no text at all."""
    ids = (255, 0, 256, 128, 72)
    world = World(small(tokenise_per_token=1_000_000))
    world.submit("a", "not these words", prompt_ids=ids)
    while not world.of(PromptWritten):
        world.step()
    (found,) = world.of(SlotFound)
    written = RingView(world.memory, world.layout).descriptor(found.slot, world.of(PromptWritten)[0].incarnation)
    assert tuple(tokens_from(RingView(world.memory, world.layout).prompt(written))) == ids
    assert world.now < 1_000_000  # what is tokens already takes no tokeniser's time
    world.settle()
    assert {message.prompt_tokens for message in world.answers if isinstance(message, Tokens)} == {5}
    assert [event.tokens for event in world.of(RequestTokenised)] == [5]


def test_an_answer_larger_than_its_arena_is_refused() -> None:
    world = World(small(token_arena_tokens=64))
    world.submit("bad", max_tokens=65)
    world.submit("good", max_tokens=64)
    world.settle()
    assert world.refusal("bad").reason == "context_length_exceeded"
    assert len(world.tokens("good")) == 64


def test_a_name_that_is_being_served_cannot_be_used_again_until_it_is_done() -> None:
    world = World()
    world.submit("a", max_tokens=3)
    world.submit("a", max_tokens=3)
    world.run(100)
    assert world.refusal("a").reason == "invalid_request"
    assert len(world.tokens("a")) == 3
    world.submit("a", max_tokens=2)
    world.run(100)
    assert len(world.tokens("a")) == 5


def test_a_full_ring_refuses_and_a_freed_slot_is_used_again() -> None:
    world = World()
    for index in range(20):
        world.submit(f"r{index}", max_tokens=3)
    world.settle()
    full = [event.name for event in world.of(RequestRefused)]
    assert full == [f"r{index}" for index in range(16, 20)]
    assert {world.refusal(name).reason for name in full} == {"ring_full"}
    world.submit("later", max_tokens=3)
    world.settle()
    assert len(world.tokens("later")) == 3
    world.assert_nothing_is_held()


def test_full_arenas_refuse_like_a_full_ring_and_nothing_leaks() -> None:
    world = World(small(input_arena_tokens=64, token_arena_tokens=64))
    for index in range(6):
        world.submit(f"r{index}", "x" * 20, max_tokens=20)
    world.settle()
    assert [world.refusal(f"r{index}").reason for index in range(2, 6)] == ["ring_full"] * 4
    world.assert_nothing_is_held()


def test_a_burst_takes_two_writes_and_one_swap_a_prompt() -> None:
    world = World()
    for index in range(8):
        world.submit(f"r{index}", max_tokens=2)
    world.run(0.1)
    first = [verb for _, verb in world.wire.posted if not isinstance(verb, Read)]
    assert [type(verb) for verb in first] == [Write, Write, *[CompareSwap] * 8]
    assert {(event.burst, event.operations) for event in world.of(PromptWritten)} == {(8, 10)}
    world.settle()
    assert all(len(world.tokens(f"r{index}")) == 2 for index in range(8))


def test_bursts_have_a_size() -> None:
    world = World(small(burst_prompts=3))
    for index in range(8):
        world.submit(f"r{index}", max_tokens=2)
    world.settle()
    assert [event.burst for event in world.of(PromptWritten)] == [3, 3, 3, 3, 3, 3, 2, 2]


def test_prompts_that_come_apart_are_written_apart() -> None:
    world = World()
    world.submit("a", max_tokens=2)
    world.run(0.05)
    world.submit("b", max_tokens=2)
    world.settle()
    assert [event.burst for event in world.of(PromptWritten)] == [1, 1]


def test_a_swap_is_posted_only_when_its_prompt_has_landed() -> None:
    world = World()
    world.submit("a")
    world.settle()
    posted = [(t, verb) for t, verb in world.wire.posted if isinstance(verb, Write | CompareSwap)]
    writes = [t for t, verb in posted if isinstance(verb, Write)]
    (swap, release) = [t for t, verb in posted if isinstance(verb, CompareSwap)]
    assert swap >= max(writes) + 2_000
    assert release > swap


def test_one_metadata_read_a_poll_and_polls_keep_their_distance() -> None:
    world = World()
    world.submit("a", max_tokens=20)
    world.settle()
    size = world.layout.metadata_size
    polls = [t for t, verb in world.wire.posted if isinstance(verb, Read) and verb.length == size]
    gaps = [later - earlier for earlier, later in pairwise(polls)]
    assert min(gaps) >= world.parameters.poll_interval_min
    assert max(gaps) <= world.parameters.poll_interval_max + 2_000
    refreshes = [verb for _, verb in world.wire.posted if isinstance(verb, Read) and verb.length == size // 2]
    assert len(refreshes) == 1


def test_an_idle_front_end_asks_nothing_of_the_gpu() -> None:
    world = World()
    world.submit("a")
    world.settle()
    posted = len(world.wire.posted)
    world.run(50)
    assert len(world.wire.posted) == posted
    assert world.front_end.deadline() is None


def test_tokens_of_neighbours_come_in_one_read() -> None:
    world = World(small(coalesce_gap_bytes=256))
    for index in range(4):
        world.submit(f"r{index}", max_tokens=8)
    world.settle()
    assert len(world.of(TokensRead)) > len(token_reads(world))
    apart = World(small(coalesce_gap_bytes=0))
    for index in range(4):
        apart.submit(f"r{index}", max_tokens=8)
    apart.settle()
    assert len(token_reads(apart)) > len(token_reads(world))


def token_reads(world: World) -> list[Verb]:
    metadata = world.layout.metadata_size
    return [v for _, v in world.wire.posted if isinstance(v, Read) and v.length not in (metadata, metadata // 2)]


def test_the_first_token_is_read_as_urgent_and_no_other() -> None:
    world = World()
    world.submit("a", max_tokens=6)
    world.settle()
    reads = world.of(TokensRead)
    assert [event.urgent for event in reads] == [True, *[False] * (len(reads) - 1)]
    assert reads[0].first == 0


def test_it_measures_its_polling() -> None:
    world = World(small(measure_interval=20_000_000))
    world.submit("a", max_tokens=20)
    world.settle()
    measured = world.of(ReaderMeasured)
    assert len(measured) >= 3
    assert all(event.metadata_bytes == event.polls * world.layout.metadata_size for event in measured)


def test_an_emoji_is_held_back_until_its_last_byte() -> None:
    world = World(text="🙂🙂\n")
    world.submit("a", "zz", max_tokens=9)
    world.settle()
    texts = [text for message in world.answers if isinstance(message, Tokens) for text in message.texts]
    assert texts == ["", "", "", "🙂", "", "", "", "🙂", "\n"]


def test_an_answer_cut_within_a_character_ends_with_the_mark() -> None:
    world = World(text="🙂🙂\n")
    world.submit("a", "zz", max_tokens=6)
    world.settle()
    assert world.text("a") == "🙂\ufffd"


def test_only_the_last_message_has_a_reason_and_all_know_the_prompt() -> None:
    world = World()
    world.submit("a", "Hello", max_tokens=7)
    world.settle()
    messages = [message for message in world.answers if isinstance(message, Tokens)]
    assert [message.reason for message in messages] == [*[None] * (len(messages) - 1), "length"]
    assert {message.prompt_tokens for message in messages} == {5}
    (served,) = world.of(RequestServed)
    assert (served.tokens, served.reason) == (7, "length")


# --- clients that go away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(0, 160, 3))
def test_a_client_may_go_away_at_any_moment(steps: int) -> None:
    world = World()
    world.submit("goes", max_tokens=6)
    world.submit("stays", max_tokens=6)
    for _ in range(steps):
        world.step()
    before = len(world.tokens("goes"))
    ended = world.ended("goes")
    world.abandon("goes")
    world.settle()
    assert len(world.tokens("goes")) == before  # nothing is delivered to nobody
    assert len(world.tokens("stays")) == 6
    assert len(world.of(RequestAbandoned)) == (not ended)
    assert len(world.of(RequestServed)) == 1 + ended
    world.assert_nothing_is_held()


@pytest.mark.parametrize("steps", range(0, 160, 3))
def test_a_client_with_its_whole_answer_is_served_at_any_moment(steps: int) -> None:
    """A stop string has matched: the slot is freed as for one that went away, but nothing has failed."""
    world = World()
    world.submit("stops", max_tokens=6)
    world.submit("stays", max_tokens=6)
    for _ in range(steps):
        world.step()
    before = len(world.tokens("stops"))
    ended = world.ended("stops")
    world.finish("stops")
    world.finish("stops")
    world.settle()
    assert len(world.tokens("stops")) == before
    assert len(world.tokens("stays")) == 6
    assert not world.of(RequestAbandoned)
    served = {event.request: (event.tokens, event.reason) for event in world.of(RequestServed)}
    assert served == {1: (6, "length") if ended else (before, "stop"), 2: (6, "length")}
    assert len(world.of(RequestServed)) == 2
    world.assert_nothing_is_held()


def test_a_request_that_is_finished_ends_long_before_its_limit() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    while len(world.tokens("a")) < 3:
        world.step()
    world.finish("a")
    world.settle()
    assert world.now < 100_000_000
    (served,) = world.of(RequestServed)
    assert (served.tokens, served.reason) == (len(world.tokens("a")), "stop")


def test_a_request_that_was_refused_is_not_served_as_well() -> None:
    """The end is known, but the tokens before it cannot be read."""
    world = World(small(poll_interval_min=20_000_000, poll_interval_max=20_000_000))
    metadata = world.layout.metadata_size
    world.wire.mischief.fail = lambda _, verb: (
        GONE if isinstance(verb, Read) and verb.length not in (metadata, metadata // 2) else None
    )
    world.submit("a", max_tokens=2)
    world.settle()
    assert world.refusal("a").reason == "unavailable"
    assert not world.of(RequestServed)
    world.assert_nothing_is_held()


def test_a_prompt_nobody_has_claimed_is_withdrawn() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=50)
    world.submit("b", max_tokens=50)
    world.run(30)
    assert state_of(world.memory.load(world.layout.state(1))) is SlotState.PREFILL_PENDING
    world.abandon("b")
    world.run(0.01)
    assert state_of(world.memory.load(world.layout.state(1))) is SlotState.EMPTY
    world.settle()
    assert not any(2 in event.requests for event in world.of(GraphSelected))


def test_a_client_that_goes_while_its_slot_is_submitted_is_not_served() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    while not world.of(PromptWritten):
        world.step()
    world.abandon("a")
    world.settle()
    assert not world.of(TokensRead)
    assert world.now < 100_000_000
    world.assert_nothing_is_held()


def test_a_prompts_extent_is_free_again_once_its_first_token_is_there() -> None:
    world = World()
    world.submit("a", "x" * 60, max_tokens=100)
    world.run(2)
    assert world.front_end.holdings.prompts.held == 64
    world.run(30)
    assert world.front_end.serving == 1
    assert world.front_end.holdings.prompts.held == 0
    assert world.front_end.holdings.answers.held == 112


def test_abandoning_what_is_unknown_or_over_is_nothing() -> None:
    world = World()
    world.abandon("nobody")
    world.submit("a")
    world.settle()
    world.abandon("a")
    world.settle()
    assert not world.of(RequestAbandoned)


# --- a wire that fails ---------------------------------------------------------------------------------------


def failing(kind: type[Verb], *, first: int = 0, last: int = 10**18) -> Mischief:
    return Mischief(fail=lambda now, verb: GONE if isinstance(verb, kind) and first <= now < last else None)


@pytest.mark.parametrize("kind", [Write, CompareSwap, Read])
def test_a_wire_that_fails_at_once_refuses_and_the_machine_goes_on(kind: type[Verb]) -> None:
    world = World(mischief=failing(kind, last=5_000_000))
    world.submit("a")
    world.run(5)
    assert world.refusal("a").reason == "unavailable"
    assert {event.verb for event in world.of(VerbFailed)} == {kind.__name__}
    assert {event.status for event in world.of(VerbFailed)} == {"retry_exceeded"}
    world.run(400)
    world.submit("b")
    world.settle()
    assert len(world.tokens("b")) == 4
    world.assert_nothing_is_held()


@pytest.mark.parametrize("start", range(1, 60, 4))
def test_a_wire_that_fails_for_a_while_loses_no_slot_and_no_extent(start: int) -> None:
    def fail(now: int, verb: Verb) -> CompletionStatus | None:
        return GONE if start * 1_000_000 <= now < (start + 7) * 1_000_000 else None

    world = World(mischief=Mischief(fail=fail))
    for index in range(6):
        world.submit(f"r{index}", max_tokens=5)
    world.run(start + 7)
    world.settle()
    world.submit("after", max_tokens=5)
    world.settle()
    assert len(world.tokens("after")) == 5
    for index in range(6):
        assert len(world.tokens(f"r{index}")) == 5 or world.refusal(f"r{index}").reason == "unavailable"
    world.assert_nothing_is_held()


def test_while_the_gpu_does_not_answer_polls_become_rare() -> None:
    world = World(mischief=failing(Read, first=10_000_000, last=2_000_000_000))
    world.submit("a", max_tokens=100)
    world.run(1_900)
    assert world.refusal("a").reason == "unavailable"
    assert len(world.of(VerbFailed)) < 40
    world.settle()
    world.assert_nothing_is_held()


def test_data_shorter_than_asked_for_is_a_failure() -> None:
    world = World()
    world.submit("a")
    while not any(isinstance(verb, Read) for _, verb in world.wire.posted):
        world.step()
    (_, _, node, read) = world.wire._pending.pop()
    world.hosts[node].complete(world.now, Completion(read.ticket, data=b"short"))
    assert world.refusal("a").reason == "unavailable"


def test_a_completion_nobody_waits_for_is_our_fault() -> None:
    with pytest.raises(MachineError):
        World().front_end.receive(0, Completion(77))


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(UnexpectedMessage):
        World().front_end.receive(0, Message())


# --- more than one front end, and what the GPU's side may do -------------------------------------------------


def test_a_front_end_with_an_old_cache_loses_the_race_and_takes_another_slot() -> None:
    world = World(front_ends=("dpu0", "gateway0"))
    world.submit("a", max_tokens=30)
    world.run(1)
    world.submit("b", max_tokens=3, node="gateway0")
    world.run(1)
    # Both believe slot 1 to be empty now: the gateway has it, the DPU's cache is older.
    world.submit("c", max_tokens=3)
    world.run(400)
    assert len(world.tokens("a")) == 30
    assert len(world.tokens("b")) == len(world.tokens("c")) == 3


def test_two_front_ends_that_submit_at_once_never_share_a_slot() -> None:
    """Slots are safe. Descriptors and arenas are not: front ends that share a ring for good need parts of their own."""
    world = World(front_ends=("dpu0", "gateway0"))
    world.submit("a", max_tokens=3)
    world.submit("b", max_tokens=3, node="gateway0")
    world.run(2)
    found = [(node, event.slot) for _, node, event in world.events if isinstance(event, SlotFound)]
    assert ("dpu0", 0) in found
    assert ("gateway0", 0) in found
    assert len(found) == 3  # one of the two had to look again
    words = [world.memory.load(world.layout.state(slot)) for slot in range(2)]
    assert [incarnation_of(word) for word in words] == [1, 1]


def test_a_progress_word_that_lies_about_another_use_of_the_slot_is_not_believed() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=60)
    world.submit("b", max_tokens=5)
    world.run(20)
    world.memory.store(world.layout.progress(1), pack_progress(5, FinishReason.STOP, 0))
    world.settle()
    assert len(world.tokens("b")) == 5
    assert all(event.request == 1 or event.count == 1 for event in world.of(TokensRead))


def test_a_slot_taken_from_under_a_request_ends_it_with_a_reason() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=20)
    world.submit("b", max_tokens=20)
    world.run(20)
    world.memory.store(world.layout.state(1), pack(SlotState.EMPTY, 40))
    world.settle()
    assert world.refusal("b").reason == "internal"
    assert len(world.tokens("a")) == 20
    world.assert_nothing_is_held()


def test_numbers_are_unique_and_ascend() -> None:
    world = World()
    for index in range(5):
        world.submit(f"r{index}", max_tokens=-1 if index % 2 else 2)
    assert [event.request for event in world.of(RequestArrived)] == [1, 2, 3, 4, 5]
