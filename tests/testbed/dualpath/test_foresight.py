from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from testbed.dualpath.bounds import Cluster
from testbed.dualpath.foresight import cluster_of, foresight
from testbed.dualpath.parameters import DualPathParameters

PAPER = {"compute": 400_000_000_000, "storage": 400_000_000_000}


def notes(rates: dict[str, int] = PAPER, **parameters: Any) -> str:
    return "\n".join(foresight(DualPathParameters(**{"storage_nodes": 16, **parameters}), rates))


def test_the_papers_machines() -> None:
    parameters = DualPathParameters(prefill_nodes=2, decode_nodes=4)
    assert cluster_of(parameters, PAPER) == Cluster(2, 4)


def test_the_slower_of_pcie_and_wire_counts_and_zero_leaves_a_resource_out() -> None:
    rates = {"compute": 200_000_000_000, "storage": 50_000_000_000}
    found = cluster_of(DualPathParameters(dram_gbyte_s=0, pcie_gbyte_s=0), rates)
    assert (found.cnic, found.dram, found.s) == (25, None, Fraction(1, 4))
    assert cluster_of(DualPathParameters(pcie_gbyte_s=12.5), rates).cnic == Fraction(25, 2)


def test_both_paths_inside_the_window_are_storage_bound_on_both_sides() -> None:
    found = notes(prefill_nodes=2, decode_nodes=4)
    assert "bounds for g=8, s=1 (B=50 GB/s, M=500 GB/s a node): 1/7 (0.143) <= P/D <= 7/2 (3.5)" in found
    assert "beyond these PE CNIC write and DE CNIC write would saturate" in found
    assert "at this P/D of 1/2 (0.5) reads are storage-bound on the SNICs of both sides" in found
    assert "at most 300 GB/s of hit KV, 7,497,001 tokens/s of ds-660b" in notes(
        prefill_nodes=2, decode_nodes=4, model="ds-660b"
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"prefill_nodes": 4, "dram_gbyte_s": 0}, "DE CNIC write would saturate first, at 89 % of what the SNICs of"),
        ({"prefill_nodes": 3, "dram_gbyte_s": 400}, "DE DRAM would saturate first, at 89 %"),
        ({"decode_nodes": 8}, "PE CNIC write would saturate first, at 89 %"),
        ({"prefill_nodes": 3, "decode_nodes": 4, "storage_nics": 3, "dram_gbyte_s": 800}, "DE CNIC read would satu"),
    ],
)
def test_outside_the_window_the_resource_is_named(parameters: dict[str, Any], words: str) -> None:
    assert words in notes(**parameters)


def test_basic_is_storage_bound_on_the_prefill_side_and_says_that_the_other_idles() -> None:
    found = notes(read_path="prefill")
    assert "by prefill nodes alone (1 SNIC); the 1 of decode nodes only write" in found
    assert "storage-bound on the SNICs of prefill nodes" in found
    assert "at most 50 GB/s" in found


def test_too_few_storage_nodes_are_named_before_the_run() -> None:
    found = notes(storage_nodes=1)
    assert "1 storage node can send 50 GB/s, less than the 100 GB/s" in found
    assert "at most 50 GB/s of hit KV" in found
    assert "storage nodes bind" not in notes(storage_nodes=2)


def test_a_window_without_any_ratio_is_said() -> None:
    found = notes(storage_nics=5, dram_gbyte_s=0)
    assert "no P/D keeps all SNICs busy; PE CNIC read, DE CNIC read cannot carry it" in found


def test_oracle_has_nothing_to_saturate() -> None:
    assert foresight(DualPathParameters(read_path="bypass"), PAPER) == [
        "no KV is read, copied or transferred: compute alone bounds this system"
    ]


def test_storage_or_compute_binds_at_the_papers_trace_as_its_figures_have_it() -> None:
    """Fig. 7: DualPath is on par with Oracle for DS 660B alone; Basic never is, and DS 27B stays behind it."""
    large = {"model": "ds-660b", "prefill_nodes": 2, "decode_nodes": 4}
    assert "16 prefill engines would take" in notes(**large)
    assert "storage-bound: these wait" in notes(**large, read_path="prefill")
    assert "compute-bound: SNICs that may read are busy" in notes(**large)
    assert "storage-bound: these wait" in notes()


def test_a_compute_bound_twin_is_told_that_a_second_path_gains_nothing() -> None:
    assert "a second path would gain nothing" in notes(compute_scale=100.0, read_path="prefill")


def test_a_pool_is_named_with_what_is_left_of_it() -> None:
    assert "DRAM pool of 500 GB a node" in notes(dram_pool_bytes=1_500_000_000_000, dram_pool_squeeze_bytes=10**12)
    assert "DRAM pool" not in notes()
