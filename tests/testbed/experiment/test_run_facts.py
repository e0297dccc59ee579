from __future__ import annotations

from typing import Any

import pytest

from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.run_facts import facts_of
from testbed.experiment.sweep import Place
from testbed.serving.agentic_models import AGENTIC_MODELS


def plan_of(kind: str, clock: Any = "simulated", **parameters: Any) -> Plan:
    tables: dict[str, Any] = {
        "name": "facts", "title": "t", "byte_scale": 100, "dilation": 20.0,
        "systems": {"s": {"kind": kind, **parameters}},
        "network": {"compute": {"rate_gbit_s": 200}, "storage": {"rate_gbit_s": 50}},
    }  # fmt: skip
    if kind != "blink":
        tables["workload"] = {
            "trajectories": {"kind": "fixed", "agents": 1, "turns": 1, "first": 64, "append": 64, "generate": 2}
        }
    spec = spec_from_tables(tables, "facts.toml")
    return compile_plan(spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock=clock)


SMALL = {
    "model": "ds-27b", "layers": 4, "engines_per_node": 2, "hbm_kv_bytes": 2_000_000_000,
    "prefill_buffer_bytes": 4_000_000_000, "decode_buffer_bytes": 4_000_000_000,
}  # fmt: skip


@pytest.mark.parametrize("clock", ["simulated", "wall"])
def test_rates_are_true_ones_under_both_clocks(clock: str) -> None:
    facts = facts_of(plan_of("dualpath", clock, **SMALL))
    assert facts.roles["pe0"] == "prefill"
    assert facts.rates["pe0.snic0.snic_rx"] == facts.rates["storage1.snic0.snic_tx"] == 50_000_000_000
    assert facts.rates["de0.cnic1.wire"] == 400_000_000_000, "both ways together"
    # B of the paper, 50 GB/s each way, and M, 500 GB/s.
    assert facts.rates["pe0.cnic0.cnic_read"] <= 400_000_000_000
    assert facts.rates["de0.dram"] == 4_000_000_000_000


def test_a_blocks_bytes_are_those_that_its_images_stand_for() -> None:
    model = facts_of(plan_of("dualpath", **SMALL)).hop_model
    assert model is not None
    exact = AGENTIC_MODELS["ds-27b"].token_bytes * 64
    # Images are rounded up to whole bytes, one for a hundred.
    assert exact <= model.full_bytes <= exact * 1.001
    assert (model.block_tokens, model.landing, model.replicas, model.persist) == (64, "buffer", 2, True)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("oracle", SMALL), ("dram_pool", SMALL), ("hcache", SMALL), ("blink", {"model": "llama-3-8b"})],
)
def test_the_hop_model_does_not_speak_of_other_data_paths(kind: str, parameters: dict[str, Any]) -> None:
    assert facts_of(plan_of(kind, **parameters)).hop_model is None


def test_basic_has_the_same_data_path() -> None:
    assert facts_of(plan_of("basic", **SMALL)).hop_model is not None
