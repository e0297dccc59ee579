from __future__ import annotations

from testbed.events.kv_events import PathChosen, TransferFinished, TurnPlaced
from testbed.metrics.fold import Folding
from testbed.metrics.read_paths import PathFold, PathState
from testbed.metrics.tally import quantile
from testbed.units import MILLISECOND as MS
from tests.testbed.metrics.agentic_stories import FULL_BYTES, LAYERS, agentic_run
from tests.testbed.metrics.stories import Story


def of(story: Story) -> PathState:
    found: PathState = Folding({"p": PathFold()}).take_all(story.records()).result("p")
    return found


def test_a_turn_that_is_placed_again_counts_as_it_was_placed_last() -> None:
    story = Story()
    for t, pe, path in ((1, "pe0", "prefill"), (2, "pe1", "decode")):
        placed = TurnPlaced("a0.t1", pe, 3, "de0", 2, 128, 200, MS)
        story.at(t, "sched0", placed, PathChosen("a0.t1", path, 2 * (path == "prefill"), 2 * (path == "decode"), 0, 0))
    (turn,) = of(story).turns.values()
    assert (turn.prefill_node, turn.prefill_engine, turn.decode_engine) == ("pe1", 3, 2)
    assert (turn.path, turn.prefill_blocks, turn.decode_blocks) == ("decode", 0, 2)


def test_a_hops_time_is_from_its_handing_over() -> None:
    story = Story().at(9, "storage0", TransferFinished("t", "pe1-2", -1, "s.snic0", "pe0.snic0", 70, 7, 4 * MS, ()))
    story.at(9, "storage0", TransferFinished("t", "pe1-2", -1, "s.snic0", "pe0.snic0", 30, 3, 8 * MS, ()))
    (hop,) = of(story).hops.values()
    assert (hop.count, hop.bytes, hop.blocks, hop.times.total, hop.times.worst) == (2, 100, 10, 6 * MS, 5 * MS)
    assert quantile(hop.times, 500) == MS


def test_layers_of_a_hop_add_up_to_the_blocks_bytes() -> None:
    found: PathState = Folding({"p": PathFold()}).take_all(agentic_run(1, 2, both_paths=False)).result("p")
    # The second turn has 10 blocks to read; the prompts of 60 and 700 tokens lie in 1 and 11 blocks.
    assert found.hops["pe1-2"].bytes == 10 * FULL_BYTES
    assert (found.hops["pe5-7"].count, found.hops["pe5-7"].bytes) == (2 * LAYERS, 12 * FULL_BYTES)
