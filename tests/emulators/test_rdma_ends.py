"""Two ends find each other by files, and planned places become real ones."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from emulators.rdma_ends import (
    BadEnds,
    NodeEnds,
    PairEnd,
    PeersMissing,
    RegionEnd,
    Translation,
    await_ends,
    read_ends,
    write_ends,
)
from testbed.machine import RemoteAddress

GID = "0000:0000:0000:0000:0000:ffff:0a3d:0001"
RING = RegionEnd("ring", planned_address=0x1000, planned_key=7, address=0x7FFF_0000_0000, key=0xFFFF_FFFF)
KV = RegionEnd("kv", planned_address=0x9000, planned_key=8, address=0x5555_0000, key=12)


def ends(node: str) -> NodeEnds:
    return NodeEnds(node, GID, 16, (PairEnd(17, 0x105, 99), PairEnd(18, 0x106, 100)), (RING, KV))


def test_what_was_written_is_read_and_leaves_no_draft(tmp_path: Path) -> None:
    control = tmp_path / "control"
    assert read_ends(control, "gpu0") is None
    write_ends(control, ends("gpu0"))
    assert read_ends(control, "gpu0") == ends("gpu0")
    assert [path.name for path in control.iterdir()] == ["gpu0.rdma"]
    found = read_ends(control, "gpu0")
    assert found is not None
    assert found.pair(18) == PairEnd(18, 0x106, 100)
    assert found.pair(0x105) is None, "its number in the plan is asked for, not the RNIC's"


def test_peers_that_come_late_are_waited_for(tmp_path: Path) -> None:
    write_ends(tmp_path, ends("gpu0"))
    late = threading.Timer(0.1, write_ends, (tmp_path, ends("gpu1")))
    late.start()
    try:
        assert await_ends(tmp_path, "dpu0", ["gpu0", "gpu1", "gpu0"], 10) == {n: ends(n) for n in ("gpu0", "gpu1")}
    finally:
        late.join()


def test_a_peer_that_does_not_come_is_named_within_the_bound(tmp_path: Path) -> None:
    write_ends(tmp_path, ends("gpu0"))
    begun = time.monotonic()
    with pytest.raises(PeersMissing, match=r"^dpu0: no RDMA ends of gpu1, gpu2 after 0\.1 s$"):
        await_ends(tmp_path, "dpu0", ["gpu2", "gpu0", "gpu1"], 0.1)
    assert time.monotonic() - begun < 5


def test_a_run_that_is_stopped_waits_no_longer(tmp_path: Path) -> None:
    with pytest.raises(PeersMissing, match="gpu0"):
        await_ends(tmp_path, "dpu0", ["gpu0"], 3600, lambda: True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "truncated"),
        ("{}", "missing required field `node`"),
        ('{"node":"gpu1","gid":"","reads_in":1,"pairs":[],"regions":[]}', "it is gpu1's"),
    ],
)
def test_a_file_that_says_what_it_may_not_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gpu0.rdma").write_text(text)
    with pytest.raises(BadEnds, match=rf"gpu0\.rdma: .*{words}"):
        read_ends(tmp_path, "gpu0")


@pytest.mark.parametrize(
    ("planned", "real"),
    [
        (RemoteAddress(0x1000, 7), (0x7FFF_0000_0000, 0xFFFF_FFFF)),
        (RemoteAddress(0x1018, 7), (0x7FFF_0000_0018, 0xFFFF_FFFF)),
        (RemoteAddress(0x9008, 8), (0x5555_0008, 12)),
        (RemoteAddress(0xFF8, 7), (0x7FFE_FFFF_FFF8, 0xFFFF_FFFF)),  # before the region, and so refused
        (RemoteAddress((1 << 64) - 8, 8), (0x5555_0000 - 0x9008, 12)),
    ],
)
def test_a_planned_place_becomes_the_same_place_of_the_real_region(
    planned: RemoteAddress, real: tuple[int, int]
) -> None:
    assert Translation(ends("gpu0")).real(planned) == real


def test_a_key_that_the_plan_does_not_know_becomes_one_that_opens_nothing() -> None:
    address, key = Translation(ends("gpu0")).real(RemoteAddress(0x1000, 6))
    assert address == 0x1000
    assert key not in {RING.key, KV.key}
    assert 0 < key < 1 << 32
