"""What a run's own capture holds, by two outside oracles: tshark's decoding and scapy's ICRC."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scapy.contrib.roce import BTH
from scapy.packet import raw
from scapy.utils import rdpcap
from whole_run import EXPERIMENTS, BenchProcess

from testbed.experiment.launch import prepare
from testbed.experiment.plan import read_plan
from testbed.experiment.reading import read_spec

pytestmark = [pytest.mark.root, pytest.mark.docker]

CAPTURE = 'captures=[{node="gpu0", interface="cnic0", limit_mib=8}]'
REQUEST, FIRST, MIDDLE, LAST = 0x0C, 0x0D, 0x0E, 0x0F
WRITES, CMP_SWAP, ATOMIC_ACK = {0x06, 0x07, 0x08, 0x0A}, 0x13, 0x12


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = read_spec(EXPERIMENTS / "small.toml", [CAPTURE])
    folder = prepare(spec, tmp_path_factory.mktemp("captured"), clock="wall").folder.path
    bench = BenchProcess(folder)
    try:
        assert bench.end() == 0
    finally:
        bench.close()
    return folder


def tshark(capture: Path, *fields: str) -> list[list[str]]:
    words = ["tshark", "-r", str(capture), "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_a_runs_capture_is_rocev2_that_others_understand(captured: Path) -> None:
    capture = captured / "captures" / "gpu0.cnic0.pcap"
    plan = read_plan((captured / "plan.json").read_bytes())
    numbers = {pair.number for node in plan.nodes for pair in node.queue_pairs}
    rows = tshark(capture, "udp.dstport", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn",
                  "infiniband.reth.dmalen", "infiniband.reth.r_key")  # fmt: skip
    assert {port for port, *_ in rows} == {"4791"}
    opcodes = [int(opcode) for _, opcode, *_ in rows]
    assert {REQUEST, FIRST, MIDDLE, LAST, CMP_SWAP, ATOMIC_ACK} <= set(opcodes)
    assert WRITES & set(opcodes)
    assert {int(number, 16) for _, _, number, *_ in rows} == numbers
    keys = {region.key for node in plan.nodes for region in node.regions}
    assert {int(key, 16) for *_, key in rows if key} <= keys
    # The token reader's poll: one READ of all slot metadata.
    assert "65536" in {length for *_, length, _ in rows}


def test_the_numbers_of_the_dpus_requests_tile(captured: Path) -> None:
    """Each request begins where the one before it ended; a READ takes a number for each packet of its answer."""
    plan = read_plan((captured / "plan.json").read_bytes())
    dpu = next(port.address for port in plan.node("dpu0").ports if port.fabric == "compute")
    rows = tshark(captured / "captures" / "gpu0.cnic0.pcap", "ip.src", "infiniband.bth.opcode", "infiniband.bth.psn",
                  "infiniband.reth.dmalen")  # fmt: skip
    expected = plan.node("dpu0").queue_pairs[0].initial_psn
    requests = 0
    for source, opcode, psn, length in rows:
        if source != dpu or int(opcode) not in {*WRITES, REQUEST, CMP_SWAP}:
            continue
        ahead = (int(psn) - expected) & 0xFFFFFF
        if ahead >= 1 << 23:  # sent again
            continue
        assert ahead == 0, f"{int(psn)} where {expected} was due"
        answers = max(1, -(-int(length) // plan.path_mtu)) if int(opcode) == REQUEST else 1
        expected = (expected + answers) & 0xFFFFFF
        requests += 1
    assert requests > 50


def test_every_icrc_is_the_one_scapy_computes(captured: Path) -> None:
    frames = rdpcap(str(captured / "captures" / "gpu0.cnic0.pcap"), count=600)
    assert len(frames) == 600
    for frame in frames:
        assert raw(frame[BTH].compute_icrc(None)) == raw(frame)[-4:]
