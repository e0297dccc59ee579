"""The table of hops against the design's tables, and the hop model against sums made by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.read_paths import ENDS, HOPS, TurnShape, bytes_by_resource, crossed, hop_blocks

PE, DE = "pe0.cnic1", "de2.cnic3"


@pytest.mark.parametrize(
    ("hop", "source", "target", "resources"),
    [
        ("pe1-2", "storage0.snic0", "pe0.snic0", {"storage0.snic0.snic_tx", "pe0.snic0.snic_rx", "pe0.dram"}),
        ("pe3-4", PE, PE, {"pe0.dram", "pe0.cnic1.cnic_read", "pe0.cnic1.cnic_write"}),
        (
            "pe5-7", PE, DE,
            {"pe0.cnic1.cnic_read", "pe0.cnic1.wire", "de2.cnic3.wire", "de2.cnic3.cnic_write", "de2.dram"},
        ),
        ("pe8-9", DE, DE, {"de2.dram", "de2.cnic3.cnic_read", "de2.cnic3.cnic_write"}),
        ("de1-2", "storage0.snic0", "de2.snic1", {"storage0.snic0.snic_tx", "de2.snic1.snic_rx", "de2.dram"}),
        (
            "de3-5", DE, PE,
            {"de2.dram", "de2.cnic3.cnic_read", "de2.cnic3.wire", "pe0.cnic1.wire", "pe0.cnic1.cnic_write"},
        ),
        (
            "de-miss", PE, DE,
            {"pe0.cnic1.cnic_read", "pe0.cnic1.wire", "de2.cnic3.wire", "de2.cnic3.cnic_write", "de2.dram"},
        ),
        ("de6-7", DE, DE, {"de2.dram", "de2.cnic3.cnic_read", "de2.cnic3.cnic_write"}),
    ],
)  # fmt: skip
def test_each_hop_crosses_what_the_design_says(hop: str, source: str, target: str, resources: set[str]) -> None:
    found = crossed(hop, source, target)
    assert set(found) == resources
    assert len(found) == len(resources)


def test_every_hop_has_its_ends() -> None:
    assert set(ENDS) == set(HOPS)


def _loads(turn: TurnShape, **options: str) -> dict[str, int]:
    return bytes_by_resource([turn], block_tokens=64, full_bytes=1, **options)  # type: ignore[arg-type]


def test_the_pe_path_loads_resources_as_in_the_papers_table() -> None:
    """Design 1.7: per byte read on the PE path, CNIC read of the PE twice, write of the DE twice, DE DRAM twice."""
    loads = _loads(TurnShape(prompt_tokens=6400, hit_blocks=100, prefill_blocks=100))
    assert loads == {
        "storage.snic.snic_tx": 100, "pe.snic.snic_rx": 100, "pe.dram": 200, "pe.cnic.cnic_read": 200,
        "pe.cnic.cnic_write": 100, "pe.cnic.wire": 100, "de.cnic.wire": 100, "de.cnic.cnic_write": 200,
        "de.cnic.cnic_read": 100, "de.dram": 200,
    }  # fmt: skip


def test_the_de_path_loads_resources_as_in_the_papers_table() -> None:
    """Design 1.7: DE DRAM three times (steps 2, 3, 6), DE CNIC read twice (3, 6), no DRAM and no SNIC of the PE."""
    loads = _loads(TurnShape(prompt_tokens=6400, hit_blocks=100, prefill_blocks=0))
    assert loads == {
        "storage.snic.snic_tx": 100, "de.snic.snic_rx": 100, "de.dram": 300, "de.cnic.cnic_read": 200,
        "de.cnic.wire": 100, "pe.cnic.wire": 100, "pe.cnic.cnic_write": 100, "de.cnic.cnic_write": 100,
    }  # fmt: skip


def test_the_corrected_check_of_equation_1_a_pe_cnic_reads_a_quarter_of_its_rate() -> None:
    """Corrections, 1: with g = 8, s = 1 and B = 50 GB/s it is 2Bs/g = 12.5 GB/s, not 50."""
    share = Fraction(_loads(TurnShape(6400, 100, 100))["pe.cnic.cnic_read"], 100)
    assert share * 50 / 8 == Fraction("12.5")


def test_missed_kv_returns_on_the_de_path_alone() -> None:
    turn = TurnShape(prompt_tokens=640, hit_blocks=8, prefill_blocks=0)
    assert hop_blocks(turn, 64) == {"de1-2": 8, "de3-5": 8, "de-miss": 2, "de6-7": 10}
    assert hop_blocks(TurnShape(640, 8, 8), 64) == {"pe1-2": 8, "pe3-4": 8, "pe5-7": 10, "pe8-9": 10}


def test_kv_that_lands_in_hbm_passes_no_buffer_of_the_decode_node_on_the_pe_path() -> None:
    loads = _loads(TurnShape(640, 8, 8), landing="hbm")
    assert "de.dram" not in loads
    assert hop_blocks(TurnShape(640, 8, 0), 64, "hbm") == {"de1-2": 8, "de3-5": 8, "de-miss-hbm": 2, "de6-7": 8}


@given(
    st.integers(0, 30), st.integers(0, 30), st.lists(st.integers(1, 150), min_size=1, max_size=5),
    st.sampled_from(["buffer", "hbm"]),
)  # fmt: skip
def test_chunks_are_fetched_and_sent_block_by_block(hit: int, here: int, chunks: list[int], landing: str) -> None:
    """Each chunk fetches all that is cached, and sends every block that it has touched (known fault 29)."""
    here = min(here, hit)
    pairs, cached = [], hit * 16
    for new in chunks:
        pairs.append((cached, new))
        cached += new
    turn = TurnShape(cached, hit, here, chunks=tuple(pairs))
    blocks = hop_blocks(turn, 16, landing)
    fetched = sum(-(-before // 16) for before, _ in pairs)
    touched = sum(len({token // 16 for token in range(before, before + new)}) for before, new in pairs)
    assert sum(blocks.get(hop, 0) for hop in ("pe3-4", "de3-5", "de3-5-hbm")) == fetched
    sent = sum(count for hop, count in blocks.items() if hop.startswith(("pe5-7", "de-miss")))
    assert sent == touched + here


def test_persisted_blocks_are_copied_written_and_replicated() -> None:
    blocks = hop_blocks(TurnShape(64, 0, 0, persisted_blocks=3), 64, replicas=3)
    assert (blocks["persist-copy"], blocks["persist-write"], blocks["replicate"]) == (3, 3, 6)
