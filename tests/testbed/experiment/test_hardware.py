"""Real parts that do not fit the nodes of a plan are refused, each with its place."""

from __future__ import annotations

import pytest

from testbed.experiment.hardware import Hardware, HardwareNode, RealRnic, misfits

DPU = HardwareNode("dpu0", "dpu", {"front0": "front", "cnic0": "compute"}, ["gpu0"])
GPU = HardwareNode("gpu0", "gpu", {"cnic0": "compute"}, ["dpu0"])
ENGINES = HardwareNode("pe0", "prefill", {"front0": "front", "cnic0": "compute", "snic0": "storage"}, ["dpu0"])
CNIC = RealRnic("mlx5_0", 3)


@pytest.mark.parametrize(
    ("rnics", "nodes", "nodes_as", "said"),
    [
        ({"dpu0": CNIC, "gpu0": CNIC}, [DPU, GPU], "namespace", []),
        (
            {"dpu0": CNIC, "gpu0": CNIC}, [DPU, GPU], "docker",
            ['nodes: "docker": "namespace" where hardware.rnics is used: a container has no RDMA devices'],
        ),
        (
            {"dpu0": CNIC}, [DPU, GPU], "namespace",
            [('hardware.rnics.dpu0: "mlx5_0": its peer gpu0 has none; RNICs give out queue-pair numbers '
             "themselves: both ends or none")],
        ),
        (
            {"dpu0": CNIC, "pe0": CNIC, "gpu0": CNIC}, [DPU, GPU, ENGINES], "namespace",
            [('hardware.rnics.pe0: "mlx5_0": a node with one RoCE port; it has cnic0, snic0, and a device '
             "would be all of them")],
        ),
    ],
)  # fmt: skip
def test_a_real_rnic_stands_at_both_ends_of_nodes_with_one_roce_port(
    rnics: dict[str, RealRnic], nodes: list[HardwareNode], nodes_as: str, said: list[str]
) -> None:
    assert [str(complaint) for complaint in misfits(Hardware(rnics=rnics), nodes, nodes_as, [])] == said
