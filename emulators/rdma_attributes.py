"""A real RNIC's numbers: the way of a reliable queue pair from RESET to RTS, and what its completions mean here.

Plain data by libibverbs' names (ibv_modify_qp(3), ibv_poll_cq(3); IBA 10.3.1 for the states): knows neither pyverbs
nor a device, so all of it is tested without either.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from testbed.machine import CompletionStatus
from testbed.network.connection import ConnectionSettings
from testbed.units import Nanoseconds

STATUS_NAMES: Final[dict[int, tuple[str, CompletionStatus]]] = {
    0: ("IBV_WC_SUCCESS", CompletionStatus.SUCCESS),
    1: ("IBV_WC_LOC_LEN_ERR", CompletionStatus.LOCAL_LENGTH_ERROR),
    2: ("IBV_WC_LOC_QP_OP_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    3: ("IBV_WC_LOC_EEC_OP_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    4: ("IBV_WC_LOC_PROT_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    5: ("IBV_WC_WR_FLUSH_ERR", CompletionStatus.FLUSHED),
    6: ("IBV_WC_MW_BIND_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    7: ("IBV_WC_BAD_RESP_ERR", CompletionStatus.REMOTE_OPERATION_ERROR),
    8: ("IBV_WC_LOC_ACCESS_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    9: ("IBV_WC_REM_INV_REQ_ERR", CompletionStatus.REMOTE_INVALID_REQUEST),
    10: ("IBV_WC_REM_ACCESS_ERR", CompletionStatus.REMOTE_ACCESS_ERROR),
    11: ("IBV_WC_REM_OP_ERR", CompletionStatus.REMOTE_OPERATION_ERROR),
    12: ("IBV_WC_RETRY_EXC_ERR", CompletionStatus.RETRY_EXCEEDED),
    13: ("IBV_WC_RNR_RETRY_EXC_ERR", CompletionStatus.RNR_RETRY_EXCEEDED),
    14: ("IBV_WC_LOC_RDD_VIOL_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    15: ("IBV_WC_REM_INV_RD_REQ_ERR", CompletionStatus.REMOTE_INVALID_REQUEST),
    16: ("IBV_WC_REM_ABORT_ERR", CompletionStatus.REMOTE_OPERATION_ERROR),
    17: ("IBV_WC_INV_EECN_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    18: ("IBV_WC_INV_EEC_STATE_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    19: ("IBV_WC_FATAL_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    20: ("IBV_WC_RESP_TIMEOUT_ERR", CompletionStatus.RETRY_EXCEEDED),
    21: ("IBV_WC_GENERAL_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    22: ("IBV_WC_TM_ERR", CompletionStatus.LOCAL_PROTECTION_ERROR),
    23: ("IBV_WC_TM_RNDV_INCOMPLETE", CompletionStatus.LOCAL_PROTECTION_ERROR),
}
"""Every `ibv_wc_status`. What has no name of its own here is a local protection error where this end is at fault, and a
remote operation error where the peer is.
"""

STATUS: Final = {number: status for number, (_, status) in STATUS_NAMES.items()}

MTU_CODES: Final = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
"""`ibv_mtu` by payload bytes."""

_TIMEOUT_UNIT: Final[Nanoseconds] = 4_096
_RETRY_FOR_EVER: Final = 7


class Step(NamedTuple):
    """One ibv_modify_qp: attributes by name, and the bits of the mask by name. Address vectors stand beside it."""

    state: str
    attributes: dict[str, int]
    mask: tuple[str, ...]


class Ends(NamedTuple):
    """What a connection's attributes depend on besides its settings."""

    peer_number: int
    psn: int
    """First sequence number that this end sends."""
    peer_psn: int
    port: int
    reads_out: int
    """READs and atomics that this end may have under way: what it can, and what the peer can answer."""
    reads_in: int
    """READs and atomics of the peer that this end can answer at once."""


def timeout_code(timeout: Nanoseconds) -> int:
    """The 5-bit code of the shortest timeout that is no shorter: 4.096 µs × 2^code (IBA 9.9.2.1). Never 0, which is
    "for ever".
    """
    return next((code for code in range(1, 31) if _TIMEOUT_UNIT << code >= timeout), 31)


def steps(settings: ConnectionSettings, ends: Ends, access: int) -> tuple[Step, Step, Step]:
    """From RESET to INIT, RTR and RTS, with all that each step must and may set for a reliable connection."""
    initialised = Step(
        "IBV_QPS_INIT",
        {"pkey_index": 0, "port_num": ends.port, "qp_access_flags": access},
        ("IBV_QP_STATE", "IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_ACCESS_FLAGS"),
    )
    ready_to_receive = Step(
        "IBV_QPS_RTR",
        {
            "path_mtu": MTU_CODES[settings.path_mtu], "dest_qp_num": ends.peer_number, "rq_psn": ends.peer_psn,
            "max_dest_rd_atomic": ends.reads_in, "min_rnr_timer": settings.rnr_timer,
        },
        ("IBV_QP_STATE", "IBV_QP_AV", "IBV_QP_PATH_MTU", "IBV_QP_DEST_QPN", "IBV_QP_RQ_PSN",
         "IBV_QP_MAX_DEST_RD_ATOMIC", "IBV_QP_MIN_RNR_TIMER"),
    )  # fmt: skip
    ready_to_send = Step(
        "IBV_QPS_RTS",
        {
            "timeout": timeout_code(settings.retransmission_timeout), "retry_cnt": settings.retry_limit,
            # 7 means for ever to an RNIC; nothing may hang here.
            "rnr_retry": min(settings.rnr_retry_limit, _RETRY_FOR_EVER - 1), "sq_psn": ends.psn,
            "max_rd_atomic": ends.reads_out,
        },
        ("IBV_QP_STATE", "IBV_QP_TIMEOUT", "IBV_QP_RETRY_CNT", "IBV_QP_RNR_RETRY", "IBV_QP_SQ_PSN",
         "IBV_QP_MAX_QP_RD_ATOMIC"),
    )  # fmt: skip
    return initialised, ready_to_receive, ready_to_send


def gid_fault(index: int, addresses: list[str], kinds: list[bool]) -> str:
    """Why row `index` of a GID table cannot be used; empty if it can. `kinds` says of each row if it is RoCE v2."""
    usable = [row for row, address in enumerate(addresses) if kinds[row] and _filled(address)]
    choice = f"RoCE v2 is at {', '.join(map(str, usable)) or 'none'}"
    if index >= len(addresses) or not _filled(addresses[index]):
        return f"GID index {index} is empty; {choice}"
    return "" if kinds[index] else f"GID index {index} is not RoCE v2; {choice}"


def _filled(address: str) -> bool:
    return bool(address.strip("0:"))
