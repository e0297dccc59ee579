"""Each system that DualPath is compared with, run: which hops its KV takes, and that all turns are answered."""

from __future__ import annotations

import pytest

from testbed.events.client_events import RequestFailed, RequestFinished
from testbed.events.kv_events import ForwardFinished, PathChosen, TransferFinished
from testbed.experiment.baseline_systems import BASELINES
from tests.testbed.baselines.pool_world import PoolWorld

PREFILL_PATH = {"pe1-2", "pe3-4", "pe5-7", "pe8-9"}
DECODE_PATH = {"de1-2", "de3-5", "de-miss", "de6-7"}
WRITES = {"persist-copy", "persist-write", "replicate"}
HOPS = {
    "basic": PREFILL_PATH | WRITES,
    "basic_layerwise": PREFILL_PATH | WRITES,
    "dual_path_round_robin": PREFILL_PATH | DECODE_PATH | WRITES,
    "oracle": set(),
    "dram_pool": (PREFILL_PATH - {"pe1-2"}) | WRITES | {"pool-local", "pool-remote"},
    "hcache": PREFILL_PATH | WRITES,
    "tardis": PREFILL_PATH | WRITES,
    "phoenix": PREFILL_PATH | WRITES,
    "file_stack": PREFILL_PATH | WRITES,
}


def ran(kind: str, *parameters: str) -> PoolWorld:
    pool = ["dram_pool_bytes = 800_000_000"] if kind == "dram_pool" else []
    world = PoolWorld(*pool, *parameters, kind=kind)
    assert world.run()
    assert not world.of(RequestFailed)
    assert len(world.of(RequestFinished)) == 20
    return world


def ended(world: PoolWorld) -> int:
    return max(now for now, _, event in world.events if isinstance(event, RequestFinished))


@pytest.mark.parametrize("kind", [row.kind for row in BASELINES])
def test_kv_takes_the_hops_of_its_system_and_no_others(kind: str) -> None:
    world = ran(kind)
    taken = {event.hop for event in world.of(TransferFinished) if isinstance(event, TransferFinished)}
    assert taken == HOPS[kind]
    assert not world.rejected()


def test_both_paths_in_turn_are_as_many_turns_each() -> None:
    paths = [event.path for event in ran("dual_path_round_robin").of(PathChosen) if isinstance(event, PathChosen)]
    assert paths.count("prefill") == paths.count("decode") == 8
    assert paths.count("none") == 4


def test_layerwise_prefill_holds_a_fraction_of_the_kv_in_hbm() -> None:
    def most(world: PoolWorld) -> int:
        batches = [event for event in world.of(ForwardFinished) if isinstance(event, ForwardFinished)]
        return max(batch.hbm_bytes for batch in batches if batch.kind == "prefill")

    # Three of four layers at a time: the one that is computed, the next, and one on its way to the decode node.
    assert 3 * most(ran("basic")) == 4 * most(ran("basic_layerwise"))


def test_hcache_fetches_half_of_the_hits_computes_the_rest_and_writes_nothing_twice() -> None:
    def computed(world: PoolWorld) -> int:
        batches = [event for event in world.of(ForwardFinished) if isinstance(event, ForwardFinished)]
        return sum(batch.tokens for batch in batches if batch.kind == "prefill")

    basic, hcache = ran("basic"), ran("hcache")
    hits = [event.hit_tokens // 16 for event in basic.placed()]
    assert hcache.blocks("pe1-2") == sum(hit // 2 for hit in hits)
    assert computed(hcache) - computed(basic) == sum(hit - hit // 2 for hit in hits) * 16
    assert hcache.blocks("persist-write") == basic.blocks("persist-write")


def test_what_is_in_the_way_of_a_read_comes_on_top_of_it() -> None:
    quick, slow = ran("tardis"), ran("file_stack")
    # Four turns of each agent, one after another, have hits to read; each waits 1.98 ms longer.
    assert ended(slow) - ended(quick) == pytest.approx(4 * 1_980_000, rel=0.1)


def test_nobody_is_faster_than_oracle() -> None:
    # Placed when they come, as the others' turns are: at this size a wait for a fetch is longer than a read.
    oracle = ended(ran("oracle", 'placement = "round_robin"'))
    for kind in ("basic", "dram_pool"):
        assert ended(ran(kind)) > oracle
