"""What a run's SNICs read says what every other resource carried: the analysis against whole simulated runs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from testbed.dualpath.bounds import SNICS, Resource, loads
from testbed.dualpath.foresight import cluster_of
from testbed.events.kv_events import TransferFinished
from testbed.experiment.assembly import parameters_of
from tests.testbed.baselines.pool_world import PoolWorld

RATES = {"compute": 200_000_000_000, "storage": 400_000_000_000}
"""Of the defaults of an experiment."""


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("basic", ()),
        ("dualpath", ()),
        ("dual_path_round_robin", ()),
        ("dualpath", ('copy = "copy_engine"',)),
        ("dualpath", ('copy = "nic_integrated"', 'cxl = "buffers"')),
    ],
)
def test_loads_of_a_run_are_what_its_snics_predict(kind: str, parameters: tuple[str, ...]) -> None:
    world = PoolWorld(*parameters, kind=kind)
    assert world.run()
    transfers = [event for event in world.of(TransferFinished) if isinstance(event, TransferFinished)]
    cluster = cluster_of(parameters_of(world.plan), RATES)
    carried: dict[Resource, int] = dict.fromkeys(Resource, 0)
    for event in transfers:
        for name in event.crossed:
            kind_of = f"{name[:2]}.{name.rpartition('.')[2]}".replace("snic_rx", "snic").replace("cxl", "dram")
            if kind_of in {resource.value for resource in Resource}:
                carried[Resource(kind_of)] += event.bytes
    seconds = max(now for now, _, _ in world.events) / 1e9
    measured = {}
    for resource, size in carried.items():
        capacity = cluster.capacity(resource)
        assert capacity is not None
        measured[resource] = size / (seconds * float(capacity) * 1e9 * cluster.nodes(resource))

    def hop_bytes(*hops: str) -> int:
        return sum(event.bytes for event in transfers if event.hop in hops)

    read = hop_bytes("pe1-2", "de1-2")
    # On the PE path hit and miss go to the decode side together.
    miss = Fraction(hop_bytes("pe5-7", "de-miss") - hop_bytes("pe1-2"), read)
    written = Fraction(hop_bytes("persist-copy"), read)
    prefill, decode = (Fraction(measured[resource]) for resource in SNICS)
    predicted = loads(cluster, prefill=prefill, decode=decode, miss=miss, written=written)
    assert predicted.keys() == set(Resource)
    for resource, load in predicted.items():
        print(f"{kind} {resource.value}: {measured[resource]:.4f}, predicted {float(load):.4f}")
        assert measured[resource] == pytest.approx(float(load), rel=0.001), resource
