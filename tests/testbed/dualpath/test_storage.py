"""The store, scene by scene: what is read where, what is damaged, who dies when."""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.dualpath.blocks import full_image, layer_image
from testbed.dualpath.chunk_letters import ChunkPlace, ForwardChunk, Knock, ReadChunks, TellVersion
from testbed.dualpath.disk import DAMAGED
from testbed.dualpath.local_messages import BlockArrived, BlocksRead, BlocksWritten, Moved
from testbed.dualpath.mail import PeerLost
from testbed.dualpath.storage import StorageServer
from testbed.events.kv_events import BlockRejected, ChunkServed, NodeLost
from testbed.machine import Compute, Event, RemoteAddress, UnexpectedMessage
from testbed.network.memory_region import PlainMemory
from tests.testbed.dualpath.storage_world import SHAPE, Store

BLOCKS = list(range(1, 13))


def written(nodes: int = 3, replicas: int = 2, blocks: list[int] | None = None) -> Store:
    """A store that holds some blocks."""
    store = Store(nodes, replicas)
    store.write("turn0", blocks or BLOCKS)
    store.settle()
    assert store.answers == [BlocksWritten(0)]
    store.answers.clear()
    return store


def read_back(store: Store, blocks: list[int]) -> None:
    """Reads and compares every byte."""
    store.read("turn1", blocks, first=100, ticket=9)
    store.settle()
    assert store.answers[-1] == BlocksRead(9)
    for place, block in enumerate(blocks):
        assert store.in_memory(100 + place) == store.image(block)


def rejected(store: Store) -> list[BlockRejected]:
    return [event for event in store.seen(BlockRejected) if isinstance(event, BlockRejected)]


def test_what_was_written_is_on_all_of_its_chain_and_on_nobody_else() -> None:
    store = written()
    for block in BLOCKS:
        holders = {name for name, disk in store.disks.items() if block in disk.chunks}
        assert holders == set(store.chain(block))
        assert {store.disks[name].chunks[block] for name in holders} == {(1, store.image(block))}
    assert not any(disk.drafts for disk in store.disks.values())
    read_back(store, BLOCKS)


def test_reads_are_spread_over_the_replicas() -> None:
    store = written()
    read_back(store, BLOCKS * 5)
    counts = Counter(node for node, _, _ in store.served)
    assert sum(counts.values()) == 60
    assert max(counts.values()) - min(counts.values()) <= 2, counts


def test_each_read_is_a_read_of_the_disk() -> None:
    """3FS has no DRAM cache (DualPath 1.11): the second read of a chunk takes the disk's time like the first."""
    store = written(1, 1, [5])
    for _ in range(3):
        read_back(store, [5])
    served = [event for event in store.seen(ChunkServed) if isinstance(event, ChunkServed)]
    reads = [event for event in served if event.operation == "read"]
    assert len(reads) == 3
    assert len({event.disk for event in reads}) == 1
    assert reads[0].disk > 0
    assert {event.bytes for event in reads} == {SHAPE.full_bytes}


def test_blocks_arrive_before_the_read_is_over_and_add_up() -> None:
    store = written()
    read_back(store, BLOCKS * 4)
    arrived = [answer.blocks for answer in store.answers if isinstance(answer, BlockArrived)]
    assert sum(arrived) == 48
    assert len(arrived) >= 6, "a few letters for each batch"


def test_nothing_asked_is_answered_at_once() -> None:
    store = Store(2, 1)
    store.read("turn0", [], ticket=3)
    store.write("turn0", [], ticket=4)
    assert store.answers == [BlocksRead(3), BlocksWritten(4)]


def test_a_block_that_nobody_has_fails_and_the_others_come() -> None:
    store = written()
    store.read("turn1", [1, 999, 2], first=100, ticket=9)
    store.settle()
    assert store.answers[-1] == BlocksRead(9, failed=(999,))
    assert store.in_memory(100) == store.image(1)
    assert store.in_memory(102) == store.image(2)
    assert {event.reason for event in rejected(store)} == {"absent"}
    assert {event.where for event in rejected(store)} == set(store.chain(999))


@pytest.mark.parametrize("replicas_damaged", [1, 2])
def test_a_corrupt_replica_is_found_by_its_checksum_and_read_from_another(replicas_damaged: int) -> None:
    store = written(2, 2, [5])
    for name in store.chain(5)[:replicas_damaged]:
        version, image = store.disks[name].chunks[5]
        store.disks[name].chunks[5] = (version, image[:20] + bytes([image[20] ^ 1]) + image[21:])
    if replicas_damaged == 1:
        read_back(store, [5])
    else:
        store.read("turn1", [5], first=100, ticket=9)
        store.settle()
        assert store.answers[-1] == BlocksRead(9, failed=(5,))
    assert len(rejected(store)) == replicas_damaged
    assert all("its checksum does not fit its bytes" in event.reason for event in rejected(store))


def test_another_block_in_its_place_is_found_too() -> None:
    store = written(2, 2, [5])
    head = store.chain(5)[0]
    store.disks[head].chunks[5] = (1, store.image(6))
    read_back(store, [5])
    assert [event.where for event in rejected(store)] == [head]


def test_a_writer_whose_memory_is_not_the_block_keeps_nothing() -> None:
    store = Store(2, 2)
    store.write("turn0", [5], ticket=1)
    wrong = layer_image(SHAPE, 5, 1, SHAPE.tokens) + layer_image(SHAPE, 5, 0, SHAPE.tokens)
    store.memories["pe0"].memory.view[: len(wrong)] = wrong
    store.settle()
    assert store.answers == [BlocksWritten(1, failed=(5,))]
    assert not any(disk.chunks or disk.drafts for disk in store.disks.values())
    assert {event.reason for event in rejected(store)} >= {"corrupt"}


def test_a_full_tail_fails_the_write_and_nobody_keeps_a_part() -> None:
    store = Store(3, 3)
    tail = store.chain(5)[-1]
    store.disks[tail]._capacity = 0
    store.write("turn0", [5], ticket=1)
    store.settle()
    assert store.answers == [BlocksWritten(1, failed=(5,))]
    assert not any(disk.chunks or disk.drafts for disk in store.disks.values())
    assert [event.reason for event in rejected(store)] == ["no room"]
    store.disks[tail]._capacity = None
    store.write("turn1", [5], ticket=2)
    store.settle()
    assert store.answers[-1] == BlocksWritten(2)
    assert {disk.chunks[5][0] for disk in store.disks.values()} == {2}, "a version is never given twice"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_node_degrades_and_never_corrupts(place: int) -> None:
    store = written(3, 3, [5, 6])
    store.kill(store.chain(5)[place])
    read_back(store, [5, 6] * 4)
    store.write("turn2", [5, 7], ticket=2)
    store.settle()
    assert store.answers[-1] == BlocksWritten(2)
    assert {store.disks[name].chunks[5][0] for name in store.chain(5)} == {2}
    lost = [event for event in store.seen(NodeLost) if isinstance(event, NodeLost)]
    assert {event.lost for event in lost} == store.dead
    assert len({event.found_by for event in lost}) == len(lost), "each says it once"


def test_without_any_live_replica_reads_and_writes_fail_and_nothing_hangs() -> None:
    store = written(2, 2, [5])
    for name in store.names:
        store.kill(name)
    store.read("turn1", [5], first=100, ticket=9)
    store.write("turn1", [6], ticket=10)
    store.settle()
    assert set(store.answers) >= {BlocksRead(9, failed=(5,)), BlocksWritten(10, failed=(6,))}


def test_a_node_that_dies_with_the_read_is_knocked_at() -> None:
    """The letter was delivered, so that no letter tells of the death: only a later one does."""
    store = written(2, 2, [5])
    store.read("turn1", [5], first=100, ticket=9)
    head = store.chain(5)[0]
    store.step(("letter", "pe0", head))
    store.kill(head, letters_kept=0)
    store.settle()
    assert store.answers[-1] == BlocksRead(9)
    assert store.in_memory(100) == store.image(5)
    assert store.now > 0


def test_a_node_that_takes_letters_and_answers_none_is_given_up() -> None:
    """Its process hangs, its NIC does not. Until then no WRITE of it can land in memory that is another's."""
    store = written(2, 2, [5])
    store.read("turn1", [5], first=100, ticket=9)
    head, other = store.chain(5)
    client = store.clients["pe0"]
    letter = store._letters["pe0", head].popleft().letter
    assert isinstance(letter, ReadChunks)
    while not any(isinstance(answer, BlocksRead) for answer in store.answers):
        for pair in [pair for pair, waiting in store._letters.items() if waiting and pair[1] == head]:
            assert isinstance(store._letters[pair].popleft().letter, Knock)
        if store.steps():
            store.step(store.steps()[0])
        else:
            assert store.pass_time()
    assert store.now >= letter.until
    assert store.in_memory(100) == store.image(5)
    assert {node for node, _, _ in store.served} == {other}
    # What it does when it wakes up, it does too late.
    effects = store.servers[head].receive(store.now, letter)
    assert not any(isinstance(effect, Compute) for effect in effects)
    assert client.deadline() is None


def test_a_read_that_comes_too_late_is_asked_for_again_and_fails_in_the_end() -> None:
    store = written(1, 1, [5])
    store.read("turn1", [5], first=100, ticket=9)
    while not any(isinstance(answer, BlocksRead) for answer in store.answers):
        store.now += 10**11
        store.step(store.steps()[0])
    assert store.answers[-1] == BlocksRead(9, failed=(5,))
    assert [event.reason for event in rejected(store)] == ["expired"] * 3


def test_a_dirty_replica_asks_the_tail_and_serves_what_is_committed() -> None:
    """CRAQ: between the tail's commit and its word the head has a draft, and may not answer by itself."""
    store = written(3, 3, [5])
    head, middle, tail = store.chain(5)
    store.write("turn1", [5], ticket=1)
    while store.disks[tail].chunks[5][0] == 1:
        store.step(next(step for step in store.steps() if step != ("letter", tail, middle)))
    assert (5, 2) in store.disks[head].drafts
    store.read("turn2", [5], first=100, ticket=9)
    while not store.served:
        # The word of the commit, which goes by the middle, is held back; what the tail tells the head is not.
        store.step(next(step for step in store.steps() if step != ("letter", tail, middle)))
    assert store.served == [(head, 5, 2)]
    store.settle()
    assert BlocksRead(9) in store.answers
    assert BlocksWritten(1) in store.answers


def test_before_the_tail_has_it_a_version_is_read_by_nobody() -> None:
    store = written(2, 2, [5])
    head, tail = store.chain(5)
    store.write("turn1", [5], ticket=1)
    while not any(isinstance(post.letter, ForwardChunk) for post in store._letters.get((head, tail), ())):
        store.step(store.steps()[0])
    held = store._letters[head, tail].popleft()
    store.read("turn2", [5], first=100, ticket=9)
    store.settle_without_time()
    assert [version for _, _, version in store.served] == [1]
    store._letters[head, tail].append(held)
    store.settle()
    assert BlocksWritten(1) in store.answers
    read_back(store, [5])
    assert store.served[-1][2] == 2


def test_letters_stay_below_a_receives_room() -> None:
    store = Store(1, 1)
    blocks = [2**63 - 1 - number for number in range(60)]
    store.write("t" * 40, blocks)
    sizes = [store.letter_bytes(post) for waiting in store._letters.values() for post in waiting]
    assert max(sizes) < 4_096
    store.settle()
    store.read("t" * 40, blocks, first=100)
    sizes = [store.letter_bytes(post) for waiting in store._letters.values() for post in waiting]
    assert max(sizes) < 4_096


def test_a_window_bounds_what_is_outstanding_at_one_node() -> None:
    store = Store(1, 1, window_bytes=3 * SHAPE.full_bytes)
    store.write("turn0", BLOCKS)
    store.settle()
    store.read("turn1", BLOCKS, first=100, ticket=9)
    most = 0
    while steps := store.steps():
        asked = [post.letter for waiting in store._letters.values() for post in waiting]
        most = max(most, sum(len(letter.chunks) for letter in asked if isinstance(letter, ReadChunks)))
        store.step(steps[0])
    assert most == 3
    assert store.answers[-1] == BlocksRead(9)


def test_the_overhead_of_retrieval_passes_before_anything_is_asked() -> None:
    store = Store(1, 1, overhead=5_000)
    store.write("turn0", [5])
    store.settle()
    begin = store.now
    store.read("turn1", [5], first=100, ticket=9)
    assert not store.steps()
    assert store.clients["pe0"].deadline() == begin + 5_000
    store.settle()
    assert store.now >= begin + 5_000
    assert store.answers[-1] == BlocksRead(9)


def test_a_block_is_written_once_by_a_client_that_knows_it_there() -> None:
    """Its id says all of its content; a turn that is placed again writes the same blocks."""
    store = Store(2, 2, rewrites=False)
    store.write("turn0", [1, 2], ticket=1)
    store.settle()
    assert store.clients["pe0"].trie.prefix([1, 2, 3]) == 2
    store.write("turn1", [1, 2, 3], ticket=2)
    store.settle()
    store.write("turn2", [3, 1], ticket=3)
    assert not store.steps()
    assert store.answers == [BlocksWritten(1), BlocksWritten(2), BlocksWritten(3)]
    assert {version for disk in store.disks.values() for version, _ in disk.chunks.values()} == {1}


def test_a_block_that_no_replica_has_any_more_is_written_again() -> None:
    store = Store(2, 1, rewrites=False)
    store.write("turn0", [1, 2], ticket=1)
    store.settle()
    store.kill(store.chain(1)[0])
    store.read("turn1", [1], first=100, ticket=2)
    store.settle()
    assert store.answers[-1] == BlocksRead(2, failed=(1,))
    assert 1 not in store.clients["pe0"].trie
    assert 2 in store.clients["pe0"].trie
    store.write("turn2", [1], ticket=3)
    store.settle()
    assert store.answers[-1] == BlocksWritten(3, failed=(1,)), "its chain had one node only"


# --- the machine's contract -------------------------------------------------------------------------------------


def server(**other: object) -> StorageServer:
    staging = PlainMemory(16 * SHAPE.full_image)
    known: dict[str, object] = {"nodes": ["storage0", "storage1"], "replicas": 2, "staging": staging, **other}
    return StorageServer("storage0", SHAPE, where=RemoteAddress(0, 1), **known)  # type: ignore[arg-type]


def test_what_a_server_cannot_take_changes_nothing() -> None:
    machine = server()
    for message in (Moved(77), BlocksRead(1)):
        with pytest.raises(UnexpectedMessage):
            machine.receive(0, message)
    assert list(machine.receive(0, Knock("pe0"))) == []
    assert list(machine.receive(0, TellVersion("storage1", 5, 1))) == [], "nobody waits for it any more"
    assert list(machine.receive(0, PeerLost("pe0", Knock("storage0")))) == [], "a client is in no chain"
    assert machine.deadline() is None


def test_a_server_is_one_of_the_nodes_and_has_room_for_staging() -> None:
    with pytest.raises(ValueError, match="storage0 is not among the storage nodes storage1"):
        server(nodes=["storage1"], replicas=1)
    with pytest.raises(ValueError, match="a staging region of"):
        server(staging=PlainMemory(64))


def test_a_server_that_starts_with_chunks_serves_them() -> None:
    machine = server(committed={5: 3})
    letter = ReadChunks("pe0", 1, "pe1-2", "turn0", "snic0", 1, 10**9, (ChunkPlace(5, 0),))
    (effect,) = machine.receive(0, letter)
    assert isinstance(effect, Compute)


def test_a_clients_batch_for_a_node_outside_its_chain_is_refused() -> None:
    store = Store(3, 1)
    outside = next(name for name in store.names if name not in store.chain(5))
    effects = store.servers[outside].receive(0, ForwardChunk("storage9", "turn0", 5, 1, 0, 0))
    (effect,) = effects
    assert "is not in its chain" in str(effect)


def test_damage_that_the_disk_finds_itself_is_told() -> None:
    store = written(2, 2, [5])
    head = store.chain(5)[0]
    store.damage(head, 5)
    read_back(store, [5])
    events: list[Event] = list(rejected(store))
    assert [event.reason for event in rejected(store)] == [f"{DAMAGED}: a bit", f"{DAMAGED}: a bit"]
    assert [event.where for event in rejected(store)] == [head, head], "once by the server, once by the client"
    assert len(events) == 2
    assert full_image(SHAPE, 5, SHAPE.tokens) == store.image(5)
