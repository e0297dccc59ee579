"""RDMA devices as sysfs shows them. This machine has none; a folder laid out as the kernel's ABI says stands for it."""

from __future__ import annotations

import os
import time
from importlib.machinery import EXTENSION_SUFFIXES
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
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("2.5 Gb/sec (1X SDR)\n")
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


def test_a_port_that_is_down_is_named(sysfs: Path) -> None:
    (sysfs / "rxe0" / "ports" / "1" / "state").write_text("1: DOWN\n")
    assert rdma.refusal(RealRnic("rxe0", 2), sysfs) == "port 1 is not active (1: DOWN)"
    assert rdma.first_active(sysfs) is None


def test_the_first_active_port_is_taken_by_its_ipv4_row(sysfs: Path) -> None:
    assert rdma.first_active(sysfs) == RealRnic("rxe0", 2, 1)
    assert rdma.facts("rxe0", sysfs) == ("rate 2.5 Gb/sec (1X SDR)",)


def test_what_no_real_rnic_can_do_without_is_named_with_its_remedy(sysfs: Path, tmp_path: Path) -> None:
    assert rdma.lacking(tmp_path / "none") == "no RDMA device"
    mode, package = tmp_path / "netns_mode", tmp_path / "pyverbs"
    mode.write_text("N\n")
    assert rdma.lacking(sysfs, package, mode).endswith("rdma system set netns shared")
    mode.write_text("Y\n")
    assert rdma.lacking(sysfs, package, mode).endswith("apt-get install python3-pyverbs")
    package.mkdir()
    (package / "device.cpython-27-x86_64-linux-gnu.so").touch()
    assert "is not built for Python 3." in rdma.lacking(sysfs, package, mode)
    (package / f"device{EXTENSION_SUFFIXES[0]}").touch()
    assert rdma.lacking(sysfs, package, mode) == ""


def test_a_run_is_refused_with_the_path_of_each_line(sysfs: Path) -> None:
    told = {"dpu0": RealRnic("rxe0", 9), "gpu0": RealRnic("mlx5_0", 3)}
    assert rdma.refusals(told, sysfs) == [
        'hardware.rnics.dpu0: "rxe0": GID index 9 is empty; RoCE v2 is at 2 of port 1',
        'hardware.rnics.gpu0: "mlx5_0": there is no such RDMA device on this host; there are rxe0',
    ]


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
