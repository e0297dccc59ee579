"""A real RNIC's numbers against libibverbs' own, where pyverbs is installed, and against the manual pages."""

from __future__ import annotations

import pytest

from emulators.rdma_attributes import MTU_CODES, STATUS, STATUS_NAMES, Ends, gid_fault, steps, timeout_code
from emulators.rdma_library import LibraryMissing, load
from testbed.machine import CompletionStatus
from testbed.network.connection import ConnectionSettings

ENDS = Ends(peer_number=0x1234, psn=11, peer_psn=22, port=2, reads_out=8, reads_in=16)


def test_every_status_of_libibverbs_has_a_meaning_here() -> None:
    assert sorted(STATUS) == list(range(24)), "ibv_wc_status counts from IBV_WC_SUCCESS to IBV_WC_TM_RNDV_INCOMPLETE"
    assert set(STATUS.values()) == set(CompletionStatus)


def test_names_numbers_and_attributes_are_those_of_pyverbs() -> None:
    try:
        library = load()
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    names = library.enums
    for number, (name, _) in STATUS_NAMES.items():
        assert getattr(names, name) == number
    failures = {name for name in dir(names) if name.startswith("IBV_WC_") and name.endswith("_ERR")}
    assert failures <= {name for name, _ in STATUS_NAMES.values()}
    for size, code in MTU_CODES.items():
        assert getattr(names, f"IBV_MTU_{size}") == code
    for step in steps(ConnectionSettings(), ENDS, 15):
        attributes = library.qp.QPAttr()
        attributes.qp_state = getattr(names, step.state)
        for name, value in step.attributes.items():
            setattr(attributes, name, value)
            assert getattr(attributes, name) == value
        assert all(isinstance(getattr(names, name), int) for name in step.mask)


def test_the_way_from_reset_to_rts() -> None:
    """ibv_modify_qp(3): what a reliable connection must set at each step; the attributes and the mask agree."""
    settings = ConnectionSettings(path_mtu=1024, rnr_timer=14, retry_limit=5)
    initialised, receiving, sending = steps(settings, ENDS, 15)
    assert initialised == (
        "IBV_QPS_INIT",
        {"pkey_index": 0, "port_num": 2, "qp_access_flags": 15},
        ("IBV_QP_STATE", "IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_ACCESS_FLAGS"),
    )
    assert receiving.state == "IBV_QPS_RTR"
    assert receiving.attributes == {
        "path_mtu": 3, "dest_qp_num": 0x1234, "rq_psn": 22, "max_dest_rd_atomic": 16, "min_rnr_timer": 14,
    }  # fmt: skip
    assert sending.state == "IBV_QPS_RTS"
    assert sending.attributes == {"timeout": 14, "retry_cnt": 5, "rnr_retry": 6, "sq_psn": 11, "max_rd_atomic": 8}
    assert len(receiving.mask) == len(receiving.attributes) + 2, "the state and the address vector stand beside them"
    assert len(sending.mask) == len(sending.attributes) + 1


@pytest.mark.parametrize("limit", range(8))
def test_no_receiver_is_waited_for_without_end(limit: int) -> None:
    """IBA 9.7.5.2.8: an RNR retry count of 7 is for ever."""
    assert steps(ConnectionSettings(rnr_retry_limit=limit), ENDS, 15)[2].attributes["rnr_retry"] == min(limit, 6)


@pytest.mark.parametrize(
    ("timeout", "code"), [(1, 1), (8_192, 1), (8_193, 2), (4_096 << 14, 14), ((4_096 << 14) + 1, 15), (1 << 60, 31)]
)
def test_timeouts_are_rounded_up_and_never_for_ever(timeout: int, code: int) -> None:
    assert timeout_code(timeout) == code


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (2, ""),
        (0, "GID index 0 is not RoCE v2; RoCE v2 is at 2"),
        (1, "GID index 1 is empty; RoCE v2 is at 2"),
        (3, "GID index 3 is empty; RoCE v2 is at 2"),
    ],
)
def test_a_wrong_gid_index_is_named(index: int, words: str) -> None:
    """Fault D7: at once, before a queue pair is brought to RTR with it."""
    none = "0000:0000:0000:0000:0000:0000:0000:0000"
    addresses = ["fe80:0000:0000:0000:0000:00ff:fe00:0001", none, "0000:0000:0000:0000:0000:ffff:0a3d:0001"]
    assert gid_fault(index, addresses, [False, False, True]) == words
