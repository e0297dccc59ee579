"""P/D just inside and just outside each bound of Eq. 9: hop table and fluid sharing agree with the closed forms."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest

from testbed.dualpath.bounds import CROSSINGS, SNICS, Cluster, Resource, loads, window
from testbed.dualpath.read_paths import TurnShape, bytes_by_resource
from tests.testbed.dualpath.load_model import LoadModel

FULL = 0.98
"""From this load on a resource is saturated; beside a bound loads are 2 to 13 % away from 1."""


class Side(NamedTuple):
    """One cluster beside a bound, and how long to look at it."""

    cluster: Cluster
    in_flight: int
    reads: int


class Edge(NamedTuple):
    """A bound and both of its sides. Design 1.7: at g = 8 and s = 1 some bounds mask others."""

    resource: Resource
    inside: Side
    outside: Side


EDGES = (
    # 7/2 with much memory: DRAM would bind at the same P/D with 500 GB/s.
    Edge(
        Resource.DE_CNIC_WRITE,
        Side(Cluster(10, 3, dram=Fraction(2_000)), 16, 10),
        Side(Cluster(4, 1, dram=Fraction(2_000)), 16, 48),
    ),
    # 5/2 with M = 400 GB/s.
    Edge(
        Resource.DE_DRAM,
        Side(Cluster(2, 1, dram=Fraction(400)), 16, 32),
        Side(Cluster(8, 3, dram=Fraction(400)), 16, 40),
    ),
    # 2/3 with s = 3 and M > 650 GB/s; 3/5 is the lower end there.
    Edge(
        Resource.DE_CNIC_READ,
        Side(Cluster(5, 8, snics=3, dram=Fraction(800)), 12, 6),
        Side(Cluster(3, 4, snics=3, dram=Fraction(800)), 16, 16),
    ),
    # 1/7.
    Edge(Resource.PE_CNIC_WRITE, Side(Cluster(1, 6), 16, 32), Side(Cluster(1, 8), 12, 24)),
)


def told(where: str, side: Side, found: dict[Resource, float]) -> None:
    """Prints the loads, for whoever runs with -s."""
    figures = "  ".join(f"{kind.value} {load:.3f}" for kind, load in found.items())
    print(f"P/D = {side.cluster.ratio} {where}: {figures}")


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.resource.value)
def test_just_inside_a_bound_only_storage_nics_saturate(edge: Edge, soak: bool) -> None:
    assert window(edge.inside.cluster).holds(edge.inside.cluster.ratio)
    found = LoadModel(edge.inside.cluster, layers=1, reads_a_nic=edge.inside.in_flight).run(
        edge.inside.reads * (3 if soak else 1)
    )
    told("inside", edge.inside, found)
    expected = loads(edge.inside.cluster)
    for kind, load in found.items():
        assert (load >= FULL) == (kind in SNICS), kind
        assert load == pytest.approx(float(expected[kind]), rel=0.02 if soak else 0.1), kind


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.resource.value)
def test_just_outside_a_bound_its_resource_saturates_and_holds_storage_back(edge: Edge, soak: bool) -> None:
    assert not window(edge.outside.cluster).holds(edge.outside.cluster.ratio)
    found = LoadModel(edge.outside.cluster, layers=1, reads_a_nic=edge.outside.in_flight).run(
        edge.outside.reads * (3 if soak else 1), full=True
    )
    told("outside", edge.outside, found)
    full = {kind for kind, load in found.items() if load >= FULL}
    assert full - set(SNICS) == {edge.resource}
    # What the SNICs read together stays below what they could.
    cluster = edge.outside.cluster
    nodes = cluster.prefill_nodes, cluster.decode_nodes
    read = sum(found[kind] * count for kind, count in zip(SNICS, nodes, strict=True)) / sum(nodes)
    assert read < min(0.98, 1 / float(max(loads(cluster).values())) + (0.03 if soak else 0.07))


def test_layers_change_nothing_in_the_long_run() -> None:
    coarse = LoadModel(Cluster(1, 1), layers=1, reads_a_nic=16).run(32)
    fine = LoadModel(Cluster(1, 1), layers=4, reads_a_nic=16).run(32)
    for kind, load in loads(Cluster(1, 1)).items():
        assert coarse[kind] == pytest.approx(float(load), rel=0.03), kind
        assert fine[kind] == pytest.approx(float(load), rel=0.03), kind


def test_the_crossings_of_the_bounds_are_those_of_the_hop_table() -> None:
    """Bytes of one hit block on either path, and of one missed block on either, by `read_paths`."""

    def crossings(hit: int, here: int, prompt: int, persisted: int = 0) -> dict[str, int]:
        return bytes_by_resource([TurnShape(prompt, hit, here, persisted)], block_tokens=1, full_bytes=1)

    names = {kind: kind.value.replace(".cnic", ".cnic.cnic").replace(".snic", ".snic.snic_rx") for kind in Resource}
    prefill, decode = crossings(1, 1, 1), crossings(1, 0, 1)
    with_miss, with_write = (crossings(1, 1, 2), crossings(1, 0, 2)), crossings(1, 1, 1, 1)
    for kind, name in names.items():
        counted = CROSSINGS[kind]
        assert prefill.get(name, 0) == counted.prefill_path, kind
        assert decode.get(name, 0) == counted.decode_path, kind
        assert with_miss[0].get(name, 0) - prefill.get(name, 0) == counted.missed, kind
        assert with_miss[1].get(name, 0) - decode.get(name, 0) == counted.missed, kind
        assert with_write.get(name, 0) - prefill.get(name, 0) == counted.written, kind
