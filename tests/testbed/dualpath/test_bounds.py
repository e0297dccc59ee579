from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.bounds import (
    SNICS,
    Cluster,
    Resource,
    binding,
    bounds,
    in_words,
    loads,
    window,
)

clusters = st.builds(
    Cluster,
    prefill_nodes=st.integers(1, 40),
    decode_nodes=st.integers(1, 40),
    engines=st.integers(1, 16),
    snics=st.integers(1, 4),
    cnic=st.sampled_from([Fraction(25), Fraction(50), Fraction(100)]),
    snic=st.sampled_from([Fraction(25), Fraction(50), Fraction(100)]),
    dram=st.sampled_from([None, Fraction(200), Fraction(400), Fraction(500), Fraction(1000)]),
    loop_back=st.just(True),
)
any_clusters = st.builds(lambda cluster, loop_back: cluster._replace(loop_back=loop_back), clusters, st.booleans())


def asked(cluster: Cluster) -> dict[Resource, tuple[Fraction | None, Fraction | None, bool]]:
    return {bound.resource: (bound.at_least, bound.at_most, bound.possible) for bound in bounds(cluster)}


def test_the_papers_machines_allow_one_to_seven_up_to_seven_to_two() -> None:
    found = window(Cluster(2, 4))
    assert found.at_least is not None
    assert found.at_least[:2] == (Resource.PE_CNIC_WRITE, Fraction(1, 7))
    assert found.at_most is not None
    assert found.at_most.at_most == Fraction(7, 2)
    assert all(found.holds(ratio) for ratio in (Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(7, 2)))
    assert not any(found.holds(ratio) for ratio in (Fraction(1, 8), Fraction(15, 4)))


def test_dram_and_the_decode_sides_writes_bind_together_at_500_gb_a_second() -> None:
    found = asked(Cluster(2, 4))
    assert found[Resource.DE_DRAM][1] == found[Resource.DE_CNIC_WRITE][1] == Fraction(7, 2)
    assert found[Resource.DE_CNIC_READ][1] == 6


def test_each_bound_of_equation_nine_can_be_made_the_one_that_binds() -> None:
    def ends(cluster: Cluster) -> tuple[Resource, Resource]:
        found = window(cluster)
        assert found.at_least
        assert found.at_most
        return found.at_least.resource, found.at_most.resource

    assert ends(Cluster(1, 1, dram=Fraction(10_000))) == (Resource.PE_CNIC_WRITE, Resource.DE_CNIC_WRITE)
    assert ends(Cluster(1, 1, dram=Fraction(400))) == (Resource.PE_CNIC_WRITE, Resource.DE_DRAM)
    assert ends(Cluster(1, 1, snics=3, dram=Fraction(651))) == (Resource.PE_CNIC_WRITE, Resource.DE_CNIC_READ)
    # With less memory than 650 GB/s the reads of three SNICs are masked by DRAM.
    assert ends(Cluster(1, 1, snics=3, dram=Fraction(649)))[1] is Resource.DE_DRAM


@given(clusters)
def test_bounds_are_the_papers_closed_forms(cluster: Cluster) -> None:
    g, s, found = Fraction(cluster.engines), cluster.s, asked(cluster)
    assert found[Resource.PE_CNIC_READ] == (None, None, s <= g / 2)
    assert found[Resource.PE_CNIC_WRITE] == ((s / (g - s), None, True) if g > s else (None, None, False))
    assert found[Resource.DE_CNIC_READ] == ((None, (g - 2 * s) / s, True) if g > 2 * s else (None, None, False))
    assert found[Resource.DE_CNIC_WRITE] == ((None, (g - s) / (2 * s), True) if g > s else (None, None, False))
    if cluster.dram is None:
        assert found[Resource.DE_DRAM] == found[Resource.PE_DRAM] == (None, None, True)
        return
    memory = cluster.dram / cluster.storage
    assert found[Resource.PE_DRAM] == (None, None, memory >= 2)
    assert found[Resource.DE_DRAM] == ((None, (memory - 3) / 2, True) if memory > 3 else (None, None, False))


shares = st.sampled_from([Fraction(0), Fraction(1, 20), Fraction(1, 2)])


@given(any_clusters, shares, shares)
def test_a_ratio_is_within_the_window_exactly_when_no_resource_is_overfull(
    cluster: Cluster, miss: Fraction, written: Fraction
) -> None:
    full = loads(cluster, miss=miss, written=written)
    assert window(cluster, miss, written).holds(cluster.ratio) == (max(full.values()) <= 1)
    for bound in bounds(cluster, miss, written):
        assert bound.holds(cluster.ratio) == (full.get(bound.resource, 0) <= 1), bound


def test_a_pair_of_engines_carries_what_the_paper_sums() -> None:
    """The table of design 1.7, from Tp = B s / (D g²) and Tc = B s / (P g²)."""
    p, d, g, s, b = 2, 4, 8, 1, Fraction(50)
    prefill, decode = b * s / (d * g * g), b * s / (p * g * g)
    cnic = loads(Cluster(p, d))
    assert cnic[Resource.PE_CNIC_READ] * b == 2 * prefill * d * g
    assert cnic[Resource.PE_CNIC_WRITE] * b == (prefill + decode) * d * g
    assert cnic[Resource.DE_CNIC_READ] * b == (prefill + 2 * decode) * p * g
    assert cnic[Resource.DE_CNIC_WRITE] * b == (2 * prefill + decode) * p * g
    assert cnic[Resource.DE_DRAM] * 500 == (3 + 2 * Fraction(p, d)) * b * s


def test_correction_1_a_prefill_cnic_reads_at_a_quarter_of_its_rate() -> None:
    """The summary has 2 × 50/(4 × 64) × 32 = 50 GB/s, "exactly met"."""
    assert loads(Cluster(2, 4))[Resource.PE_CNIC_READ] * 50 == Fraction(25, 2)


def test_correction_2_the_prefill_sides_writes_are_to_hbm_and_the_return_is_not_counted() -> None:
    """The summary counts a write to the DE buffer and the missed KV among the writes of a prefill CNIC."""
    without, with_miss = loads(Cluster(2, 4)), loads(Cluster(2, 4), miss=Fraction(1, 50))
    assert with_miss[Resource.PE_CNIC_WRITE] == without[Resource.PE_CNIC_WRITE] == Fraction(3, 8)
    assert with_miss[Resource.PE_CNIC_READ] == without[Resource.PE_CNIC_READ] + Fraction(1, 50) * 3 / 8
    assert (
        with_miss[Resource.DE_CNIC_WRITE] == without[Resource.DE_CNIC_WRITE] + Fraction(1, 50) * 2 * Fraction(6, 4) / 8
    )


def test_half_the_engines_is_the_most_storage_nics_and_not_all_of_them() -> None:
    """The paper says "s <= g always holds" of PE CNIC reads; strictly it is s <= g/2 (design 1.7)."""
    assert asked(Cluster(1, 1, engines=8, snics=4))[Resource.PE_CNIC_READ][2]
    assert not asked(Cluster(1, 1, engines=8, snics=5))[Resource.PE_CNIC_READ][2]
    assert not window(Cluster(1, 1, engines=8, snics=5, dram=None)).possible


def test_basic_leaves_the_decode_sides_storage_idle() -> None:
    found = loads(Cluster(1, 1), decode=Fraction(0))
    assert (found[Resource.PE_SNIC], found[Resource.DE_SNIC]) == (1, 0)
    assert binding(found) is Resource.PE_SNIC


def test_what_binds_is_a_storage_nic_inside_and_the_predicted_resource_outside() -> None:
    assert binding(loads(Cluster(7, 2))) in SNICS
    assert binding(loads(Cluster(4, 1, dram=None))) is Resource.DE_CNIC_WRITE
    assert binding(loads(Cluster(3, 1, dram=Fraction(400)))) is Resource.DE_DRAM
    assert binding(loads(Cluster(1, 8))) is Resource.PE_CNIC_WRITE
    assert binding(loads(Cluster(3, 4, snics=3, dram=Fraction(800)))) is Resource.DE_CNIC_READ


def test_copies_that_are_no_loop_back_ask_less_of_the_cnics() -> None:
    """g = 8, s = 1, ample memory: reads bind nowhere below s = g, and the decode side's writes are as before."""
    found = asked(Cluster(2, 4, dram=None, loop_back=False))
    paper = asked(Cluster(2, 4, dram=None))
    assert found[Resource.DE_CNIC_READ] == (None, None, True)
    assert found[Resource.DE_CNIC_WRITE] == paper[Resource.DE_CNIC_WRITE]
    assert found[Resource.PE_CNIC_WRITE] == paper[Resource.PE_CNIC_WRITE]
    before, after = loads(Cluster(2, 4)), loads(Cluster(2, 4, loop_back=False))
    assert after[Resource.PE_CNIC_READ] == before[Resource.PE_CNIC_READ] / 2
    assert all(after[resource] <= before[resource] for resource in Resource)


@pytest.mark.parametrize(
    ("value", "words"), [(Fraction(7, 2), "7/2 (3.5)"), (Fraction(6), "6"), (Fraction(1, 7), "1/7 (0.143)")]
)
def test_a_ratio_in_words(value: Fraction, words: str) -> None:
    assert in_words(value) == words
