from __future__ import annotations

from pathlib import Path

import pytest

SMALL = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml"


@pytest.fixture(scope="session")
def two_rings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of a simulated run with two GPUs, each with its ring."""
    from testbed.experiment.launch import prepare, simulate
    from testbed.experiment.reading import read_spec

    spec = read_spec(SMALL, ["systems.blink.gpus=2", "workload.requests=16"])
    prepared = prepare(spec, tmp_path_factory.mktemp("rings"), clock="simulated")
    assert simulate(prepared.plans[0], prepared.folder).outcome == "passed"
    return prepared.folder.events
