"""What-ifs of a node's inside on the flow wire: who shares PCIe with copies that are no loop-back; CXL memory."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.service_levels import COLLECTIVE, KV
from testbed.experiment.plan import Plan
from testbed.machine import Completion, CompletionStatus, Write
from testbed.network.host_design import HostDesign
from testbed.network.memory_region import PlainMemory
from testbed.network.wires import FlowWire, WireSettings
from testbed.units import SECOND, Nanoseconds
from tests.testbed.network.test_host_resources import ALONE, RATE, SIZE, about, ends, plan, read, write

COPY_ENGINE = HostDesign(copies="copy_engine")
WITH_CLASSES = HostDesign(copies="copy_engine", pcie_classes=True)
INTEGRATED = HostDesign(copies="nic_integrated")
CXL = HostDesign(cxl_bits_per_s=RATE // 2, in_cxl=("buffer",))
OWN = "cnic0>de0.cnic0"
"""From de0's port to itself, and for others into it."""


def designed(design: HostDesign, pcie: int = RATE, dram: int = 0) -> Plan:
    made = plan(pcie=pcie, dram=dram)
    return msgspec.structs.replace(
        made, nodes=tuple(msgspec.structs.replace(node, host_design=design) for node in made.nodes)
    )


def up(made: Plan, ticket: int = 1, size: int = SIZE) -> tuple[str, Write]:
    """Host to device."""
    return "de0", write(made, ticket, OWN, "buffer", "hbm0", size=size)


def down(made: Plan, ticket: int = 2) -> tuple[str, Write]:
    return "de0", write(made, ticket, OWN, "hbm0", "buffer")


def comes(made: Plan, ticket: int = 3, level: int = COLLECTIVE, node: str = "pe0") -> tuple[str, Write]:
    """Into the HBM of de0."""
    return node, write(made, ticket, OWN, "hbm0", "hbm0", level)


def leaves(made: Plan, ticket: int = 4, level: int = COLLECTIVE) -> tuple[str, Write]:
    return "de0", write(made, ticket, "cnic0>pe0.cnic0", "hbm0", "hbm0", level)


@pytest.mark.parametrize("design", [COPY_ENGINE, WITH_CLASSES, INTEGRATED])
def test_a_copy_crosses_the_link_once_and_no_wire(design: HostDesign) -> None:
    """What leaves and a host-to-device copy do not meet, nor do what comes and a copy the other way; frames cost it
    nothing. A loop-back meets both (test_host_resources).
    """
    made = designed(design)
    assert ends(made, up(made)) == [SIZE // 10 + 1]
    assert ends(made, up(made), leaves(made, level=KV)) == [about(ALONE)] * 2
    assert ends(made, down(made), comes(made, level=KV)) == [about(ALONE)] * 2


def test_collectives_suffer_from_the_copy_engine_both_ways() -> None:
    made = designed(COPY_ENGINE)
    assert ends(made, up(made), comes(made)) == [about(2 * ALONE)] * 2
    assert ends(made, down(made), leaves(made)) == [about(2 * ALONE)] * 2


@pytest.mark.parametrize("design", [WITH_CLASSES, INTEGRATED, HostDesign()])
def test_with_classes_or_on_the_nic_copies_give_way_to_collectives(design: HostDesign) -> None:
    made = designed(design)
    assert ends(made, up(made), comes(made)) == [about(2 * ALONE), about(ALONE)]


def test_the_copy_engine_takes_turns_with_the_whole_nic() -> None:
    """Half for the copy, however many lanes and transfers the NIC has; among themselves these share by lanes."""
    made = designed(COPY_ENGINE)
    copy, collective, kv = ends(made, up(made), comes(made), comes(made, 5, KV, "de1"))
    assert copy == about(2 * ALONE)
    assert collective == about(2 * ALONE)
    assert kv == about(3 * ALONE)


def test_kv_of_the_nic_keeps_its_half_beside_the_copy_engine() -> None:
    made = designed(COPY_ENGINE)
    assert ends(made, up(made), comes(made, level=KV)) == [about(2 * ALONE)] * 2


def test_what_the_nic_leaves_is_the_copy_engines() -> None:
    """A link of twice the port's rate: the NIC takes half at most."""
    made = designed(COPY_ENGINE, pcie=2 * RATE)
    assert ends(made, up(made, size=SIZE), comes(made)) == [about(ALONE), about(ALONE)]
    made = designed(COPY_ENGINE, pcie=4 * RATE)
    assert ends(made, up(made, size=3 * SIZE // 2), comes(made)) == [about(ALONE / 2), about(ALONE)]


def test_copies_of_one_engine_come_one_after_another() -> None:
    made = designed(COPY_ENGINE)
    assert ends(made, up(made, 1), down(made, 2)) == [about(ALONE), about(2 * ALONE)]


def test_a_copy_within_host_memory_crosses_the_link_both_ways() -> None:
    made = designed(COPY_ENGINE)
    within = ("de0", write(made, 1, OWN, "buffer", "buffer"))
    assert ends(made, within, comes(made)) == [about(2 * ALONE)] * 2
    assert ends(made, within, leaves(made)) == [about(2 * ALONE)] * 2


def test_copies_share_host_memory_with_all_else() -> None:
    made = designed(COPY_ENGINE, dram=RATE // 2)
    other = ("de0", write(made, 2, "cnic1>de0.cnic1", "buffer", "hbm1"))
    assert ends(made, up(made)) == [about(2 * ALONE)]
    assert ends(made, up(made), other) == [about(4 * ALONE)] * 2


def test_pcie_classes_alone_change_nothing() -> None:
    """Without a copy engine the NIC's lanes arbitrate all of the link already."""
    plain, classes = designed(HostDesign()), designed(HostDesign(pcie_classes=True))
    posts = (up, down, comes, leaves)
    assert ends(plain, *(post(plain) for post in posts)) == ends(classes, *(post(classes) for post in posts))


def test_cxl_memory_has_a_rate_of_its_own_beside_dram() -> None:
    made = designed(CXL, pcie=0, dram=100 * RATE)
    assert ends(made, up(made)) == [about(2 * ALONE)]
    assert ends(made, ("pe0", read(made, 1, OWN, "buffer"))) == [about(2 * ALONE)]
    assert ends(made, comes(made)) == [about(ALONE)], "HBM is not behind CXL"
    elsewhere = designed(msgspec.structs.replace(CXL, in_cxl=("pool",)), pcie=0, dram=100 * RATE)
    assert ends(elsewhere, up(elsewhere)) == [about(ALONE)]


def test_the_latency_of_cxl_is_added_once_for_each_crossing() -> None:
    quick, slow = (designed(msgspec.structs.replace(CXL, cxl_latency=time), pcie=0) for time in (0, 7_000))
    for posts, times in (((up,), 1), ((down,), 1), ((comes,), 0)):
        (before,), (after,) = (ends(made, *(post(made) for post in posts)) for made in (quick, slow))
        assert after - before == 7_000 * times
    within = [ends(made, ("de0", write(made, 1, OWN, "buffer", "buffer"))) for made in (quick, slow)]
    assert within[1][0] - within[0][0] == 14_000


def test_later_bytes_do_not_overtake_earlier_ones_of_their_queue_pair() -> None:
    """The first verb's data come out of or go into slow memory, the next one's do not: order is kept, both ways."""
    made = designed(msgspec.structs.replace(CXL, cxl_latency=1_000_000), pcie=0)
    slow = ("de0", write(made, 1, "cnic0>pe0.cnic0", "buffer", "hbm0"))
    quick = ("de0", write(made, 2, "cnic0>pe0.cnic0", "hbm0", "hbm0", size=64))
    first, second = ends(made, slow, quick)
    assert first == second == about(2 * ALONE + 1_000_000)
    first, second = ends(made, ("pe0", read(made, 1, OWN, "buffer")), ("pe0", read(made, 2, OWN, "hbm0")))
    assert second == max(first, second)
    assert first == about(2 * ALONE + 1_000_000)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([COPY_ENGINE, WITH_CLASSES, INTEGRATED, HostDesign()]),
    st.sampled_from([RATE // 2, RATE, 3 * RATE]),
)
def test_every_byte_lands_and_no_link_is_faster_than_it_is(seed: int, design: HostDesign, pcie: int) -> None:
    random = Random(seed)
    made = designed(design, pcie=pcie)
    memories = {(node.name, region.name): PlainMemory(region.size) for node in made.nodes for region in node.regions}
    wire = FlowWire(made, memories, settings=WireSettings(latency=0))
    crossings = {"in": 0, "out": 0}
    landed: list[tuple[str, str, int, bytes]] = []
    step = SIZE // 8
    for ticket in range(8):
        source, target = random.choice((("de0", "de0"), ("pe0", "de0"), ("de0", "pe0")))
        up_to_device = random.random() < 0.5
        regions = ("buffer", "hbm0") if up_to_device else ("hbm0", "buffer")
        data = random.randbytes(random.randrange(1, step))
        verb = write(made, ticket, f"cnic0>{target}.cnic0", *regions)
        verb = msgspec.structs.replace(verb, data=data, remote=verb.remote.at(ticket * step))
        wire.post(0, source, verb)
        landed.append((target, regions[1], ticket * step, data))
        both_ways = source != target or design.copies == "cnic"
        crossings["in"] += len(data) if target == "de0" and (both_ways or up_to_device) else 0
        crossings["out"] += len(data) if source == "de0" and (both_ways or not up_to_device) else 0
    now: Nanoseconds = 0
    answers = []
    while (moment := wire.deadline()) is not None:
        now = moment
        answers += [message for _, message in wire.wake(moment)]
    assert [answer.status for answer in answers if isinstance(answer, Completion)] == [CompletionStatus.SUCCESS] * 8
    for node, region, offset, data in landed:
        assert bytes(memories[node, region].view[offset : offset + len(data)]) == data
    assert (now + 1) * pcie >= max(crossings.values()) * 8 * SECOND
