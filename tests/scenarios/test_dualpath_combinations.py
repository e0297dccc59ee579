"""Parameters that nobody put together on purpose: every turn is answered, no block is bad, no memory stays held.

Each case is a small run under the simulated clock. What is drawn at random is the same in every run; `--soak` draws
much more of it.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.events.client_events import RequestFinished
from testbed.events.kv_events import AgentFinished, BlockRejected, BufferMeasured, NodeLost
from testbed.events.ordering import merge
from testbed.experiment.launch import prepare
from testbed.experiment.reading import read_spec, spec_from_tables, tables_of
from testbed.experiment.simulation import simulate
from testbed.experiment.spec import Spec
from tests.scenarios.whole_run import TOP

SMALL = TOP / "fixtures" / "experiments" / "dualpath" / "small.toml"
BLOCK = 1_512_960
"""True bytes of a Full Block of ds-27b, at 64 tokens."""
TIGHT = 14 * BLOCK
"""Room for one turn of 512 tokens, and hardly more."""
TURNS, AGENTS = 3, 3

# fmt: off
CASES: list[dict[str, Any]] = [
    {"engines_per_node": 1, "storage_nics": 8},
    {"engines_per_node": 16},
    {"storage_nics": 3, "read_path": "split"},
    {"block_tokens": 7, "chunk_tokens": 5},
    {"block_tokens": 4096},
    {"replicas": 5, "storage_nodes": 5},
    {"replicas": 1, "storage_nodes": 1},
    {"layers": 1, "layerwise": False, "layers_ahead": 0},
    {"layers": 61, "layers_ahead": 8},
    {"decode_landing": "hbm", "copy": "copy_engine", "read_path": "split"},
    {"read_path": "bypass", "collectives": "node"},
    {"collectives": "role", "prefill_nodes": 2, "tensor_parallel": True, "engines_per_node": 1},
    {"hbm_kv_bytes": TIGHT, "prefill_buffer_bytes": TIGHT, "decode_buffer_bytes": 20 * BLOCK},
    {"hbm_kv_bytes": TIGHT, "decode_buffer_bytes": 20 * BLOCK, "decode_landing": "hbm", "read_path": "split"},
    {"quota": 0, "batch_tokens": 1, "doorbell_batch": 1},
    {"unstored_context": "compute", "hbm_counted_at": "report", "reads_counted_at": "fetch"},
    {"max_sequences": 1, "alpha_tokens": 0, "beta_tokens": 1, "prefill_nodes": 2, "prefill_group_nodes": 1},
    {"persist": False},
    # A group of one engine whose HBM is held by what leaves: it must not step on the spot until that has left.
    {
        "collectives": "role", "engines_per_node": 1, "decode_nodes": 2, "layers": 1, "layers_ahead": 8,
        "hbm_kv_bytes": TIGHT, "block_tokens": 100, "copy": "copy_engine",
    },
    {"fetch_percent": 30, "dram_pool_bytes": 8 * BLOCK, "placement": "affinity", "prefill_nodes": 2},
    {"dram_pool_bytes": BLOCK, "dram_pool_squeeze_bytes": BLOCK // 2, "read_path": "decode"},
    {"model": "qwen-2.5-32b", "fetch_period": 100_000},
    {"copy": "copy_engine", "pcie_qos": True, "collectives": "node", "cxl": "buffers", "cxl_gbyte_s": 1},
]
# fmt: on

ANY: dict[str, list[Any]] = {
    "layers": [1, 4, 9],
    "prefill_nodes": [1, 2],
    "decode_nodes": [1, 2],
    "engines_per_node": [1, 2, 3],
    "storage_nics": [1, 2, 3],
    "storage_nodes": [2, 3],
    "replicas": [1, 2],
    "hbm_kv_bytes": [TIGHT, 2_000_000_000],
    "prefill_buffer_bytes": [TIGHT, 4_000_000_000],
    "decode_buffer_bytes": [32 * BLOCK, 4_000_000_000],
    "block_tokens": [16, 64, 100],
    "persist": [True, True, False],
    "read_path": ["prefill", "decode", "round_robin", "shorter_queue", "split", "bypass"],
    "placement": ["scheduled", "round_robin"],
    "unstored_context": ["wait", "compute"],
    "hbm_counted_at": ["assignment", "report"],
    "layerwise": [True, False],
    "layers_ahead": [0, 1, 8],
    "quota": [None, 0, 3_000_000],
    "chunk_tokens": [1, 64, 1000],
    "copy": ["cnic", "copy_engine", "nic_integrated"],
    "cxl": ["none", "none", "buffers", "pool"],
    "decode_landing": ["buffer", "hbm"],
    "collectives": ["none", "none", "node", "role"],
    "tensor_parallel": [False, False, True],
    "dram_pool_bytes": [0, 0, 5 * BLOCK, 10**9],
    "fetch_percent": [100, 50],
    "retrieval_overhead": [0, 2_000_000],
    "max_sequences": [1, 256],
}
"""Values of each parameter; those that a turn of this workload cannot be served with are left out."""


def small(parameters: dict[str, Any]) -> Spec:
    """The shipped small experiment with other parameters and a few short turns."""
    tables = tables_of(read_spec(SMALL))
    tables["systems"]["dualpath"] |= parameters
    tables["workload"]["trajectories"] |= {"agents": AGENTS, "turns": TURNS, "first": 320, "append": 70, "generate": 9}
    return spec_from_tables({**tables, "expect": {}}, "combination")


def run_to_the_end(parameters: dict[str, Any], folder: Path) -> None:
    run = prepare(small(parameters), folder, clock="simulated")
    end = simulate(run.plans[0], run.trials[0])
    assert (end.outcome, end.detail) == ("passed", "")
    records = list(merge(run.trials[0].events))
    assert sum(isinstance(record.event, RequestFinished) for record in records) == AGENTS * TURNS
    ended = [record.event.outcome for record in records if isinstance(record.event, AgentFinished)]
    assert ended == ["finished"] * AGENTS
    assert not [record for record in records if isinstance(record.event, BlockRejected | NodeLost)]
    memory: dict[tuple[str, str], int] = {}
    for record in records:
        if isinstance(record.event, BufferMeasured):
            assert 0 <= record.event.held <= record.event.total
            memory[record.node, record.event.what] = record.event.held
    assert memory
    assert not {where: held for where, held in memory.items() if held}


@pytest.mark.parametrize("parameters", CASES, ids=lambda case: ",".join(f"{key}={case[key]}" for key in case))
def test_the_ends_of_what_may_be_set(parameters: dict[str, Any], tmp_path: Path) -> None:
    run_to_the_end(parameters, tmp_path)


def test_whatever_is_set_together(tmp_path: Path, soak: bool) -> None:
    for seed in range(300 if soak else 6):
        rng = Random(seed)
        drawn = {name: rng.choice(values) for name, values in ANY.items()}
        if drawn["read_path"] == "bypass" or (drawn["cxl"] == "pool" and not drawn["dram_pool_bytes"]):
            drawn["cxl"] = "none"  # the two that are refused together, as test_dualpath_system shows
        try:
            run_to_the_end(drawn, tmp_path / str(seed))
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {drawn}") from wrong


def test_a_spec_that_sets_nothing_runs_with_the_papers_memory(tmp_path: Path) -> None:
    """80 GB buffers and 20 GB of HBM an engine, true bytes of KV: more than the host may have."""
    text = {"kind": "fixed", "agents": 1, "turns": 2, "first": 128, "append": 64, "generate": 2}
    tables = {"name": "x", "title": "X", "systems": {"d": {"kind": "dualpath"}}, "workload": {"trajectories": text}}
    run = prepare(spec_from_tables(tables, "x.json"), tmp_path, clock="simulated")
    end = simulate(run.plans[0], run.trials[0])
    assert (end.outcome, end.detail) == ("passed", "")
