"""RDMA devices as sysfs shows them. This machine has none; a folder laid out as the kernel's ABI says stands for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.experiment.hardware import RealRnic
from topologies import offers, rdma

EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """One virtual device, without a `device` link to a PCI path (fault D10)."""
    port = tmp_path / "rxe0" / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    rows = ["fe80:0000:0000:0000:0000:00ff:fe00:0001", EMPTY, "0000:0000:0000:0000:0000:ffff:0a3d:0001"]
    for index, (row, kind) in enumerate(zip(rows, ["IB/RoCE v1", "", "RoCE v2"], strict=True)):
        (port / "gids" / str(index)).write_text(row + "\n")
        if kind:
            (port / "gid_attrs" / "types" / str(index)).write_text(kind + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("rnic", "words"),
    [
        (RealRnic("rxe0", 2), ""),
        (RealRnic("mlx5_0", 2), "there is no such RDMA device on this host; there are rxe0"),
        (RealRnic("rxe0", 0), "GID index 0 is IB/RoCE v1; RoCE v2 is at 2 of port 1"),
        (RealRnic("rxe0", 1), "GID index 1 is empty; RoCE v2 is at 2 of port 1"),
        (RealRnic("rxe0", 99), "GID index 99 is empty; RoCE v2 is at 2 of port 1"),
        (RealRnic("rxe0", 2, 7), "GID index 2 is empty; RoCE v2 is at none of port 7"),
    ],
)
def test_a_wrong_gid_index_is_named_and_does_not_hang(sysfs: Path, rnic: RealRnic, words: str) -> None:
    """Fault D7."""
    begun = time.monotonic()
    assert rdma.refusal(rnic, sysfs) == words
    assert time.monotonic() - begun < 2


def test_a_host_without_devices_has_none(tmp_path: Path) -> None:
    assert rdma.devices(tmp_path / "missing") == []
    assert rdma.refusal(RealRnic("mlx5_0", 3), tmp_path / "missing").endswith("there are none")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Usage: rdma link show [DEV]'", "too old: it has no `rdma link add`"),
        ("echo 'Failed to open NETLINK_RDMA socket' >&2; exit 1", "this kernel has no RDMA"),
        (None, "is not installed"),
    ],
)
def test_an_old_rdma_tool_is_a_reason_not_a_crash(tmp_path: Path, script: str | None, words: str) -> None:
    """Faults D1, D9."""
    if script is not None:
        tool = tmp_path / "rdma"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    assert words in rdma.rxe_lacking({"PATH": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: interfaces are looked at")
def test_doctor_tells_what_the_host_offers_and_why_the_rest_is_not_lent() -> None:
    begun = time.monotonic()
    found = {offer.name: offer.detail for offer in offers.offers()}
    assert time.monotonic() - begun < 10
    assert {"rxe", "python3-pyverbs", "storage images"} <= set(found)
    assert all("\n" not in detail for detail in found.values())
