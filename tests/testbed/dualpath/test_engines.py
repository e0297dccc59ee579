"""Engines and leaders together on a wire: read paths, layers, chunks, landing, persistence, and the bytes of it all.

Every block that reaches HBM is checked by the engines themselves; a turn that ends without a failure was computed on
right bytes throughout.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from testbed.dualpath.blocks import block_ids
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.read_paths import TurnShape, bytes_by_resource, hop_blocks
from testbed.dualpath.turn_letters import BlocksPersisted, FetchWork, Produced, ReadQueued
from testbed.events.kv_events import (
    BlockRejected,
    BufferMeasured,
    EngineMeasured,
    ForwardFinished,
    ReadQueueMeasured,
    TransferFinished,
    TurnStage,
)
from testbed.serving.turns import Turn, joined
from testbed.units import MILLISECOND, SECOND, Nanoseconds
from tests.testbed.dualpath.world import DEFAULTS, World, turn

PATHS = {"prefill": 5, "decode": 0, "split": 2}
"""Hit blocks, of five, that the prefill side reads."""


def _with(**changes: object) -> DualPathParameters:
    return msgspec.structs.replace(DEFAULTS, **changes)


def _played(one: Turn, hit: int, here: int, **changes: object) -> World:
    world = World(_with(**changes))
    world.store(one, hit)
    world.assign(one, hit, here)
    assert world.finish(one)
    assert world.desk.ended(one.name) == {"pe0": "", "de0": ""}
    return world


def _chunks(world: World, hit: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (event.cached, event.tokens)
        for _, _, event in world.of(ForwardFinished)
        if isinstance(event, ForwardFinished) and event.kind == "prefill"
    )


def _model(world: World, one: Turn, hit: int, here: int) -> TurnShape:
    tokens = world.shape.tokens
    stored = (one.prompt_tokens + one.generate_tokens - 1) // tokens - hit
    return TurnShape(one.prompt_tokens, hit, here, stored, _chunks(world, hit))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("landing", ["buffer", "hbm"])
@pytest.mark.parametrize("batch_tokens", [8192, 21])
@pytest.mark.parametrize("replicas", [1, 2])
def test_every_hop_carries_what_the_hop_model_says(path: str, landing: str, batch_tokens: int, replicas: int) -> None:
    """Bytes of every hop and of every resource, exactly: both paths, chunks that end within blocks, both landings."""
    one = turn(prompt=100 + 37, answer=20)
    here = PATHS[path]
    world = _played(one, 5, here, decode_landing=landing, batch_tokens=batch_tokens, chunk_tokens=7, replicas=replicas)
    shape = _model(world, one, 5, here)
    expected = hop_blocks(shape, 16, landing, replicas)
    layers, full = world.shape.layers, world.shape.true_bytes(world.shape.full_image)
    carried: Counter[str] = Counter()
    loads: Counter[str] = Counter()
    for _, _, event in world.of(TransferFinished):
        assert isinstance(event, TransferFinished)
        carried[event.hop] += event.bytes
        for resource in event.crossed:
            node, _, rest = resource.partition(".")
            loads[".".join(word.rstrip("0123456789") for word in (node, *rest.split(".")))] += event.bytes
    assert dict(carried) == {hop: blocks * full for hop, blocks in expected.items()}
    model = bytes_by_resource([shape], block_tokens=16, full_bytes=full, landing=landing, replicas=replicas)
    assert dict(loads) == model
    assert layers == 4


@pytest.mark.parametrize("path", PATHS)
def test_stages_come_in_order_and_the_first_token_before_decode(path: str) -> None:
    one = turn(prompt=100, answer=6)
    world = _played(one, 5, PATHS[path])
    stages = [event.stage for _, _, event in world.of(TurnStage) if isinstance(event, TurnStage)]
    assert stages == ["allocated", "reading", "ready", "prefilling", "prefilled", "landing", "decoding", "ended"]
    times = world.desk.tokens(one.name)
    assert len(times) == 6
    assert times == sorted(times)
    prefilled = next(now for now, _, event in world.of(TurnStage) if event.stage == "prefilled")  # type: ignore[attr-defined]
    assert 0 <= times[0] - prefilled < MILLISECOND


def _spans(world: World, hop: str) -> dict[int, tuple[Nanoseconds, Nanoseconds]]:
    return {
        event.layer: (event.began, now)
        for now, _, event in world.of(TransferFinished)
        if isinstance(event, TransferFinished) and event.hop == hop
    }


def test_layers_are_fetched_ahead_and_sent_on_behind_the_compute() -> None:
    """Layer l + 1 is fetched, and layer l - 1 sent on, while layer l computes; none is fetched earlier than that."""
    one = turn(prompt=200, answer=1)
    world = _played(one, 10, 10)
    fetched, sent = _spans(world, "pe3-4"), _spans(world, "pe5-7")
    assert list(fetched) == list(sent) == [0, 1, 2, 3]
    forward = next(event for _, _, event in world.of(ForwardFinished) if isinstance(event, ForwardFinished))
    layer_time = forward.computed // 4
    begun = fetched[0][1]
    for layer in range(4):
        computed = begun + (layer + 1) * layer_time
        assert abs(sent[layer][0] - computed) < MILLISECOND, "sent on as soon as it is computed"
        if layer >= 2:
            assert fetched[layer][0] >= computed - 2 * layer_time - MILLISECOND, "two layers ahead is too early"
        if layer:
            assert fetched[layer][1] < computed - layer_time, "there before its compute began"
    assert sent[0][1] < begun + 2 * layer_time, "behind the compute of the next layer, not after all"


@pytest.mark.parametrize("path", PATHS)
def test_layerwise_prefill_holds_a_window_of_layers_and_not_all(path: str) -> None:
    """Peak HBM and tokens of a batch grow about n_layers times (LayerKV): here 24 layers to a window of 3."""
    one = turn(prompt=200, answer=1)
    peaks = {}
    for layerwise in (True, False):
        world = _played(one, 5, PATHS[path], layers=24, layerwise=layerwise, hbm_kv_bytes=100_000_000)
        peaks[layerwise] = max(
            event.hbm_bytes
            for _, node, event in world.of(ForwardFinished)
            if isinstance(event, ForwardFinished) and node == "pe0"
        )
        assert peaks[layerwise] == (3 if layerwise else 24) * 13 * world.shape.layer_bytes
    assert peaks[False] == 8 * peaks[True]


def test_small_hbm_takes_more_tokens_into_a_batch_where_prefill_is_layerwise() -> None:
    tokens = {}
    for layerwise in (True, False):
        world = World(_with(layers=24, layerwise=layerwise, hbm_kv_bytes=14_000_000, engines_per_node=1))
        turns = [turn(f"a{each:04}.t000", prompt=160, answer=1, stream=each + 1) for each in range(12)]
        for one in turns:
            world.assign(one, 0, 0)
        assert world.finish(*turns)
        tokens[layerwise] = max(
            event.tokens
            for _, _, event in world.of(ForwardFinished)
            if isinstance(event, ForwardFinished) and event.kind == "prefill"
        )
    # The first turn is computed alone, since it is the first that is ready.
    assert tokens == {True: 11 * 160, False: 3 * 160}


@pytest.mark.parametrize(("batch_tokens", "chunk"), [(48, 16), (37, 5), (16, 16), (5, 1), (256, 64)])
@pytest.mark.parametrize("path", PATHS)
def test_chunks_end_anywhere_and_no_computed_page_is_lost_known_fault_29(
    path: str, batch_tokens: int, chunk: int
) -> None:
    """Chunks of 16 and of odd lengths over blocks of 16 tokens: each block is whole and right when it is used."""
    one = turn(prompt=137, answer=18)
    world = _played(one, 5, PATHS[path], batch_tokens=batch_tokens, chunk_tokens=chunk, quota=None)
    chunks = _chunks(world, 5)
    assert sum(new for _, new in chunks) == 137 - 80
    assert all(later[0] == before[0] + before[1] for before, later in pairwise(chunks))
    assert all(new <= batch_tokens for _, new in chunks)
    _assert_stored(world, one)
    # Known fault 28: what is loaded is never negative and never more than the hit.
    read = Counter(event.hop for _, _, event in world.of(TransferFinished))  # type: ignore[attr-defined]
    assert read["pe1-2"] == PATHS[path]
    assert read["de1-2"] == 5 - PATHS[path]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("landing", ["buffer", "hbm"])
def test_engines_say_how_many_layer_blocks_they_have_checked(path: str, landing: str) -> None:
    """All that is cached before each chunk at the prefill side, the whole prompt once at the decode side."""
    world = _played(turn(prompt=137, answer=6), 5, PATHS[path], batch_tokens=16, quota=None, decode_landing=landing)
    counted = Counter[str]()
    for _, _, event in world.of(ForwardFinished):
        assert isinstance(event, ForwardFinished)
        counted[event.kind] += event.verified
    cached = sum(-(-before // 16) for before, _ in _chunks(world, 5))
    assert counted == {"prefill": 4 * cached, "decode": 4 * 9}


@pytest.mark.parametrize("path", PATHS)
def test_a_prefill_in_chunks_gives_its_one_token_after_the_last_known_fault_2(path: str) -> None:
    one = turn(prompt=137, answer=6)
    world = _played(one, 5, PATHS[path], batch_tokens=16, quota=None)
    ends = [
        at
        for at, _, event in world.of(ForwardFinished)
        if isinstance(event, ForwardFinished) and event.kind == "prefill"
    ]
    said = [(at, letter) for at, letter in world.desk.letters if isinstance(letter, Produced)]
    assert len(ends) == 4
    assert said[0][0] >= ends[-1]
    assert said[0][1].tokens == 1
    assert len(world.desk.tokens(one.name)) == 6


def _assert_stored(world: World, one: Turn) -> None:
    """All full blocks of prompt and answer are in storage; the answer's last token has no KV."""
    ids = block_ids(joined((*one.prompt, *one.answer)), world.shape.tokens)
    full = (one.prompt_tokens + one.generate_tokens - 1) // world.shape.tokens
    stored = {block for disk in world.disks.values() for block in disk.chunks}
    assert stored == set(ids[:full])


def test_every_full_block_is_persisted_at_once_and_told_in_order() -> None:
    one = turn(prompt=100, answer=40)
    world = _played(one, 0, 0)
    _assert_stored(world, one)
    told = [(now, each.blocks) for now, each in world.desk.letters if isinstance(each, BlocksPersisted)]
    # The first six are the prompt's, four by four as staging has pages; the seventh is full with the KV of the twelfth
    # token of the answer, which is made when the thirteenth is.
    assert [blocks for _, blocks in told] == [4, 6, 7, 8]
    times = world.desk.tokens(one.name)
    assert told[1][0] < times[1] + MILLISECOND
    assert 0 <= told[2][0] - times[12] < MILLISECOND


def test_a_context_that_was_persisted_is_read_back_by_the_next_turn() -> None:
    """Two turns of one agent, the second with everything of the first as its context."""
    first = turn("a0000.t000", prompt=100, answer=29)
    whole = joined((*first.prompt, *first.answer))
    second = Turn("a0000.t001", 0, 1, joined((*whole, turn(stream=9, prompt=20).prompt[0])), 129, turn(stream=8).answer)
    world = World()
    world.assign(first, 0, 0)
    world.assign(second, 8, 8, at=SECOND)
    assert world.finish(first, second)
    assert world.desk.ended(second.name) == {"pe0": "", "de0": ""}
    assert not world.of(BlockRejected)


def _many(world: World, count: int, path: str) -> list[Turn]:
    turns = []
    for each in range(count):
        prompt = 30 + 53 * each % 300
        one = turn(f"a{each:04}.t000", prompt=prompt, answer=1 + 7 * each % 30, stream=each + 1)
        hit = (prompt - 1) // 16 * (each % 3) // 2
        world.store(one, hit)
        here = {"prefill": hit, "decode": 0, "split": hit // 2}[path]
        world.assign(one, hit, here, at=each * 3 * MILLISECOND, pe=("pe0", each % 2), de=("de0", each // 2 % 2))
        turns.append(one)
    return turns


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("landing", ["buffer", "hbm"])
def test_all_memory_is_free_at_drain_and_nobody_holds_more_than_there_is_known_fault_26(
    path: str, landing: str
) -> None:
    """Memory for one or two turns at a time: turns wait, load while pools are full (31), and none waits for ever."""
    parameters = _with(
        prefill_buffer_bytes=8_000_000, decode_buffer_bytes=12_000_000, hbm_kv_bytes=11_000_000,
        decode_landing=landing, batch_tokens=100,
    )  # fmt: skip
    world = World(parameters)
    turns = _many(world, 12, path)
    assert world.finish(*turns)
    assert all(world.desk.ended(one.name) == {"pe0": "", "de0": ""} for one in turns)
    assert all(len(world.desk.tokens(one.name)) == one.generate_tokens for one in turns)
    assert world.held() == {}
    measured = [event for _, _, event in world.of(BufferMeasured) if isinstance(event, BufferMeasured)]
    assert all(0 <= event.held <= event.total for event in measured)
    assert any(event.waiting for event in measured), "the memory was small enough to be waited for"


def test_fetches_report_what_is_assigned_and_what_is_still_to_be_read() -> None:
    world = World(_with(fetch_period=SECOND))
    one = turn(prompt=400, answer=3)
    other = turn("a0001.t000", prompt=64, answer=9, stream=2)
    world.store(one, 24)
    world.assign(one, 24, 24, at=MILLISECOND)
    world.assign(other, 0, 0, at=MILLISECOND, pe=("pe0", 1), de=("de0", 1))
    assert world.finish(one, other)
    world.run(SECOND - 1)
    last = [world.desk.fetches(node)[-1] for node in ("pe0", "de0")]
    for fetch in last:
        assert isinstance(fetch, FetchWork)
        assert [each.sequences for each in fetch.engines] == [0, 0]
        assert fetch.read_queue == 0
    blocks = [each.free_blocks for each in last[1].engines]
    assert blocks == [60_000_000 // world.shape.full_bytes] * 2
    ends = [now for now, letter in world.desk.letters if isinstance(letter, FetchWork) and now > MILLISECOND]
    assert len(ends) == 4, "each end of a turn made its leader fetch"


def test_the_read_queue_is_told_when_it_changes_by_much() -> None:
    one = turn(prompt=16 * 400, answer=1)
    parameters = _with(hbm_kv_bytes=200_000_000, decode_buffer_bytes=200_000_000, prefill_buffer_bytes=200_000_000)
    world = World(parameters)
    world.store(one, 390)
    world.assign(one, 390, 390)
    assert world.finish(one)
    told = [each.tokens for _, each in world.desk.letters if isinstance(each, ReadQueued) and each.node == "pe0"]
    assert told[0] == 390 * 16
    assert told[-1] == 0
    assert told == sorted(told, reverse=True)
    measured = [event.tokens for _, _, event in world.of(ReadQueueMeasured)]  # type: ignore[attr-defined]
    assert set(told) <= {*measured, 0}


def test_the_oracle_reads_copies_and_transfers_nothing() -> None:
    one = turn(prompt=100, answer=6)
    world = World(_with(read_path="bypass"))
    world.assign(one, 5, 5)
    assert world.finish(one)
    assert len(world.desk.tokens(one.name)) == 6
    assert not world.of(TransferFinished)
    forward = next(event for _, _, event in world.of(ForwardFinished) if isinstance(event, ForwardFinished))
    assert (forward.cached, forward.tokens) == (80, 20)
    assert world.held() == {}


def test_the_answers_of_turns_that_decode_together_come_in_the_same_steps() -> None:
    """Every request is in every step (design 1.5); the first token is the prefill engine's."""
    world = World()
    turns = [turn(f"a{each:04}.t000", prompt=64, answer=12, stream=each + 1) for each in range(3)]
    for one in turns:
        world.assign(one, 0, 0)
    assert world.finish(*turns)
    steps = [len(event.turns) for _, node, event in world.of(ForwardFinished) if node == "de0"]  # type: ignore[attr-defined]
    # The first one is prefilled alone, being the first that is ready; the others join it, and end together.
    alone = steps.index(3)
    assert steps == [1] * alone + [3] * (11 - alone) + [2] * alone
    first, second, third = (world.desk.tokens(one.name) for one in turns)
    assert second[1:] == third[1:]
    assert set(second[1 : 12 - alone]) <= set(first)
    produced = [letter.tokens for _, letter in world.desk.letters if isinstance(letter, Produced)]
    assert produced == [1, 1, 1]


def test_an_engine_says_about_each_second_how_busy_it_was() -> None:
    """Turns one after another at one engine of each side: compute is most of the time at the one that is asked most."""
    world = World(_with(compute_scale=10.0, batch_tokens=300))
    turns = [turn(f"a{each:04}.t000", prompt=300, answer=4, stream=each + 1) for each in range(8)]
    for one in turns:
        world.assign(one, 0, 0)
    assert world.finish(*turns)
    computed: Counter[str] = Counter()
    for _, node, event in world.of(ForwardFinished):
        assert isinstance(event, ForwardFinished)
        computed[node] += event.computed
    measured = {node: [event for _, where, event in world.of(EngineMeasured) if where == node] for node in computed}
    assert measured["pe0"]
    for node, events in measured.items():
        busy = 0
        for event in events:
            assert isinstance(event, EngineMeasured)
            assert event.interval >= SECOND
            assert event.busy <= event.interval
            busy += event.busy
        assert busy <= computed[node]
    assert sum(event.busy for event in measured["pe0"]) > computed["pe0"] // 2  # type: ignore[attr-defined]


def test_the_same_world_twice_is_the_same_to_the_nanosecond() -> None:
    def play() -> list[object]:
        world = World(_with(batch_tokens=70))
        turns = _many(world, 8, "split")
        assert world.finish(*turns)
        return [*world.events]

    assert play() == play()
