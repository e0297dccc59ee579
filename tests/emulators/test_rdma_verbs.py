"""Verbs on a real RNIC beyond the wire contract: what is refused before a run, sleeping, loss, room. On paper."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulators import node as emulated_node
from emulators import rdma_device
from emulators.node import NodeRun
from emulators.rdma_device import RnicUnfit
from emulators.rdma_ends import PeersMissing, read_ends
from emulators.rdma_library import LibraryMissing, load
from emulators.rdma_verbs import RdmaVerbs
from emulators.verbs import QueueFull, UnknownPeer, VerbsError
from testbed.events.fidelity_events import HardwareEngaged
from testbed.events.log import read_log
from testbed.experiment.hardware import Hardware, RealRnic
from testbed.experiment.plan import Plan, write_plan
from testbed.machine import Completion, CompletionStatus, Read, RemoteAddress, Send, Write
from testbed.network.connection import ConnectionSettings
from tests.conformance.test_real_rnic import REGION, RdmaHarness, node
from tests.emulators import paper_rdma

RNIC = RealRnic("paper0", 2)
SETTINGS = ConnectionSettings(path_mtu=1024)


@pytest.fixture(autouse=True)
def on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma_device, "EVENT_FILE", paper_rdma.EVENT_FILE)


@pytest.fixture
def device() -> paper_rdma.Device:
    return paper_rdma.Device()


@pytest.fixture
def harness(device: paper_rdma.Device, tmp_path: Path) -> Iterator[RdmaHarness]:
    made = RdmaHarness(device.library(), RNIC, tmp_path, 4, device.advance)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("device", "rnic", "words"),
    [
        (paper_rdma.Device(), RealRnic("mlx5_0", 2), "mlx5_0, port 1, GID index 2: Failed to find device mlx5_0"),
        (paper_rdma.Device(), RealRnic("paper0", 0), "GID index 0: GID index 0 is not RoCE v2; RoCE v2 is at 2"),
        (paper_rdma.Device(), RealRnic("paper0", 9), "GID index 9: GID index 9 is empty; RoCE v2 is at 2"),
        (paper_rdma.Device(state=1), RNIC, "the port is not active"),
        (paper_rdma.Device(active_mtu=2), RNIC, "its port carries 512 bytes a packet, path_mtu is 1024"),
        (paper_rdma.Device(atomic_caps=0), RNIC, "it has no atomics, which rings need"),
    ],
)
def test_an_unfit_device_is_named_at_once(device: paper_rdma.Device, rnic: RealRnic, words: str) -> None:
    """A wrong GID index (fault D7) among them."""
    begun, before = time.monotonic(), rdma_device._event_descriptors()
    with pytest.raises(RnicUnfit, match=words):
        RdmaVerbs(device.library(), rnic, node("a"), SETTINGS)
    assert time.monotonic() - begun < 2
    assert rdma_device._event_descriptors() == before, "what was opened is closed"


def test_facts_say_whom_atomics_are_atomic_against() -> None:
    for caps, words in ((1, "atomic among itself, not the CPU"), (2, "atomic among itself and the CPU")):
        device = paper_rdma.Device(atomic_caps=caps)
        verbs = RdmaVerbs(device.library(), RNIC, node("a"), SETTINGS)
        assert words in verbs.facts
        verbs.close()


def test_nothing_is_posted_before_the_peers_are_joined(device: paper_rdma.Device, tmp_path: Path) -> None:
    verbs = RdmaVerbs(device.library(), RNIC, node("a"), SETTINGS)
    verbs.register(REGION)
    with pytest.raises(VerbsError, match="a has not joined b yet"):
        verbs.post(Send(1, "b", data=b""))
    with pytest.raises(UnknownPeer):
        verbs.post(Send(1, "c", data=b""))
    with pytest.raises(PeersMissing, match=r"a: no RDMA ends of b after 0\.\d s"):
        verbs.join(tmp_path, 0.1)
    ends = read_ends(tmp_path, "a")
    assert ends is not None
    assert ends.gid == paper_rdma.GIDS[2]
    assert ends.regions[0].planned_key == REGION.key
    assert ends.regions[0].key != REGION.key
    verbs.close()


def test_reads_under_way_are_what_both_ends_can(harness: RdmaHarness, device: paper_rdma.Device) -> None:
    for pair in device.pairs.values():
        assert pair.settings.max_rd_atomic == 4, "max_qp_init_rd_atom of the device"
        assert pair.settings.max_dest_rd_atomic == 16
        assert pair.settings.ah_attr.gr.sgid_index == 2
    assert len(device.pairs) == len(harness.verbs) == 2


def test_a_sleeper_is_woken_by_a_completion_and_by_nothing_else(
    harness: RdmaHarness, device: paper_rdma.Device
) -> None:
    verbs = harness.verbs["a"]
    verbs.post(Write(1, "b", remote=harness.remote("b"), data=b"x"))
    assert verbs.sleep(0.02) is False
    assert verbs.arm()
    assert select.select([verbs.completion_fd], (), (), 0)[0] == []
    device.advance()
    assert select.select([verbs.completion_fd], (), (), 0)[0] == [verbs.completion_fd]
    assert verbs.poll() == [Completion(1)]
    # The event of a completion that was polled already is fetched, and wakes nobody for a second time.
    assert verbs.arm()
    assert select.select([verbs.completion_fd], (), (), 0)[0] == []


def test_what_completed_before_arming_is_not_slept_over(harness: RdmaHarness, device: paper_rdma.Device) -> None:
    verbs = harness.verbs["a"]
    verbs.post(Write(1, "b", remote=harness.remote("b"), data=b"x"))
    device.advance()
    assert not verbs.arm()
    assert verbs.waiting()
    assert verbs.poll() == [Completion(1)]


def test_a_device_that_is_pulled_out_flushes_all_and_wakes_its_sleeper(
    harness: RdmaHarness, device: paper_rdma.Device
) -> None:
    """Fault D3, at a real RNIC."""
    verbs = harness.verbs["a"]
    verbs.post(Write(1, "b", remote=harness.remote("b"), data=b"before"))
    device.advance()
    for ticket in range(2, 200):
        verbs.post(Write(ticket, "b", remote=harness.remote("b"), data=b"after"))
    device.die()
    assert verbs.sleep(5)
    assert verbs.poll() == [Completion(1), *(Completion(ticket, CompletionStatus.FLUSHED) for ticket in range(2, 200))]
    assert verbs.lost
    assert verbs.in_flight == 0
    verbs.post(Read(300, "b", remote=harness.remote("b"), length=1))
    assert verbs.poll() == [Completion(300, CompletionStatus.FLUSHED)]
    assert select.select([verbs.completion_fd], (), (), 0)[0] == [], "a device that is gone keeps nobody awake"


def test_a_port_that_goes_down_is_left_to_retries(harness: RdmaHarness, device: paper_rdma.Device) -> None:
    verbs = harness.verbs["a"]
    device.contexts[0].tell(paper_rdma.ENUMS.IBV_EVENT_PORT_ERR)
    verbs.sleep(1)
    assert not verbs.lost
    harness.post("a", Write(1, "b", remote=harness.remote("b"), data=b"x"))
    harness.run(lambda: harness.completions["a"] == [Completion(1)])


def test_more_than_the_bound_is_not_taken(harness: RdmaHarness) -> None:
    verbs = harness.verbs["a"]
    verbs.waiting_limit = 3
    data = bytearray(b"early")
    for ticket in range(64 + 3):
        verbs.post(Write(ticket, "b", remote=harness.remote("b"), data=memoryview(data)))
    with pytest.raises(QueueFull):
        verbs.post(Write(99, "b", remote=harness.remote("b"), data=b""))
    data[:] = b"later"
    harness.run(lambda: len(harness.completions["a"]) == 67)
    assert [completion.ticket for completion in harness.completions["a"]] == list(range(67))
    assert bytes(harness.memory("b").view[:5]) == b"early", "what waits keeps the bytes that it was given"


def test_a_closed_device_leaves_no_descriptor(device: paper_rdma.Device, tmp_path: Path) -> None:
    before = rdma_device._event_descriptors()
    for _ in range(3):
        made = RdmaHarness(device.library(), RNIC, tmp_path, 4, device.advance)
        made.close()
        made.close()
    assert rdma_device._event_descriptors() == before
    assert not device.regions


def test_what_is_used_of_pyverbs_is_there() -> None:
    """The library itself, without a device: every name that `emulators.rdma_device` and `rdma_verbs` use."""
    try:
        library = load()
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    used: list[tuple[Any, str]] = [
        (library.device.Context, "query_port query_gid query_gid_type query_device get_async_event close"),
        (library.device.PortAttr, "state gid_tbl_len active_mtu"),
        (library.device.AsyncEvent, "event_type ack"),
        (
            library.device.DeviceAttr,
            "atomic_caps max_cqe max_qp_wr max_qp_rd_atom max_qp_init_rd_atom fw_version",
        ),
        (library.cq.CompChannel, "get_cq_event close"),
        (library.cq.CQ, "poll req_notify ack_events close"),
        (library.cq.WC, "wr_id status byte_len"),
        (library.mr.MR, "lkey rkey close"),
        (library.qp.QP, "qp_num modify post_send post_recv close"),
        (library.wr.SendWR, "wr_id num_sge opcode sg_list set_wr_rdma set_wr_atomic"),
    ]
    for owner, names in used:
        assert [name for name in names.split() if not hasattr(owner, name)] == [], owner
    for name in vars(paper_rdma.ENUMS):
        assert getattr(library.enums, name) == getattr(paper_rdma.ENUMS, name), name
    place = library.wr.SGE(0x1000, 8, 3)
    request = library.wr.SendWR(num_sge=1, sg=[place])
    request.sg_list = place
    request.num_sge, request.wr_id, request.opcode = 0, 1 << 40, library.enums.IBV_WR_RDMA_READ
    request.set_wr_rdma(0xFFFF_FFFF, (1 << 64) - 8)
    request.set_wr_atomic(7, 8, (1 << 64) - 1, (1 << 64) - 1)
    place.addr, place.length = (1 << 47) - 1, (1 << 31) - 1
    route = library.addr.GlobalRoute(
        dgid=library.addr.GID(paper_rdma.GIDS[2]), sgid_index=3, hop_limit=64, traffic_class=0xF0
    )
    way = library.addr.AHAttr(port_num=1, is_global=1, gr=route, sl=15)
    assert (str(way.dgid), way.sgid_index, way.sl) == (paper_rdma.GIDS[2], 3, 15)
    attributes = library.qp.QPAttr()
    attributes.ah_attr = way
    library.wr.RecvWR(wr_id=5, num_sge=1, sg=[place])
    cap = library.qp.QPCap(max_send_wr=64, max_recv_wr=16)
    init = library.qp.QPInitAttr(qp_type=library.enums.IBV_QPT_RC, cap=cap, sq_sig_all=1)
    assert init.qp_type == library.enums.IBV_QPT_RC


def test_the_plan_decides_which_rnic_a_node_has(
    device: paper_rdma.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes of a queue pair start at once, as a bench starts them, and reach each other's regions by plan."""
    plan = Plan(
        run="r-000000", label="000000", clock="wall", system="blink", kind="blink", seed=1, dilation=1.0, byte_scale=1,
        path_mtu=4096, fabrics=(), nodes=(node("a"), node("b")), parameters={}, workload={}, nodes_as="namespace",
        hardware=Hardware(rnics={"a": RNIC, "b": RNIC}),
    )  # fmt: skip
    (tmp_path / "plan.json").write_bytes(write_plan(plan))
    (tmp_path / "events").mkdir()
    monkeypatch.setattr(emulated_node, "load", device.library)
    runs = {name: NodeRun(tmp_path, name) for name in "ab"}
    opening = threading.Lock()
    opened: Callable[..., None] = RdmaVerbs.__init__

    def one_at_a_time(self: RdmaVerbs, *arguments: Any, **named: Any) -> None:
        with opening:  # descriptors are told apart by when they appear in a process, and nodes are processes
            opened(self, *arguments, **named)

    monkeypatch.setattr(RdmaVerbs, "__init__", one_at_a_time)
    threads = [threading.Thread(target=run.connect) for run in runs.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    try:
        verbs = runs["a"].verbs
        assert isinstance(verbs, RdmaVerbs)
        place = RemoteAddress(REGION.address + 8, REGION.key)
        verbs.post(Write(1, "b", remote=place, data=b"by the plan"))
        device.advance()
        assert verbs.poll() == [Completion(1)]
        assert bytes(runs["b"].memories[REGION.name].view[8:19]) == b"by the plan"
    finally:
        for run in runs.values():
            run.finish(0)
    told = [record.event for record in read_log(tmp_path / "events" / "a.jsonl")]
    engaged = [event for event in told if isinstance(event, HardwareEngaged)]
    assert [(event.seam, event.place, event.device) for event in engaged] == [("rnic", "a", "paper0")]
    assert "firmware 1.2.3" in engaged[0].facts
