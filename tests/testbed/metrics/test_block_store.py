from __future__ import annotations

from testbed.dualpath.blocks import BadBlock
from testbed.events.kv_events import BlockRejected, ChunkServed, NodeLost, TurnReplaced
from testbed.metrics.block_store import StoreFold, StoreState
from testbed.metrics.fold import Folding
from tests.testbed.metrics.stories import Story


def of(story: Story) -> StoreState:
    found: StoreState = Folding({"s": StoreFold()}).take_all(story.records()).result("s")
    return found


def test_a_wrong_block_that_reached_an_engine_is_counted_apart() -> None:
    story = Story()
    for block, layer in ((0xABCDEF0123456789, 3), (0xABCDEF0123456780, 17)):
        reason = str(BadBlock(block, layer, "its checksum does not fit its bytes"))
        story.at(1, "de0", BlockRejected(f"{block:016x}", "storage0", reason))
    story.at(2, "pe0", BlockRejected("1", "hbm0", "has 7 tokens"))
    found = of(story)
    assert found.rejected == {"block # layer #: its checksum does not fit its bytes": 2, "has # tokens": 1}
    assert found.in_hbm == 1


def test_chunks_are_summed_by_operation() -> None:
    story = Story().at(1, "s0", ChunkServed("read", "a", 1, 100, 5), ChunkServed("read", "b", 1, 50, 7))
    story.at(2, "s1", ChunkServed("commit", "a", 1, 0, 1))
    found = of(story).chunks
    assert (found["read"].bytes, found["read"].disk.n, found["read"].disk.total) == (150, 2, 12)
    assert found["commit"].disk.n == 1


def test_the_first_who_finds_a_node_lost_is_named_and_turns_are_counted_by_what_became_of_them() -> None:
    story = Story().at(1, "pe0", NodeLost("de0", "pe0")).at(2, "sched0", NodeLost("de0", "sched0"))
    story.at(3, "sched0", *(TurnReplaced(f"t{number}", "de0 is lost", number > 0) for number in range(3)))
    found = of(story)
    assert (found.lost, found.replaced, found.given_up) == ({"de0": "pe0"}, 2, 1)
