"""The front end's way: bursts of prompts, polls, reads of tokens, and what goes out to the client."""

from __future__ import annotations

from itertools import pairwise

from testbed.events.schema import (
    PromptWritten,
    ReaderMeasured,
    RequestServed,
    TokensRead,
)
from testbed.machine import (
    CompareSwap,
    Read,
    Verb,
    Write,
)
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import World, small


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


