"""The isolation experiment over real packets: what a port's lanes counted is what its capture holds.

Times are judged by the experiment's own expectations, in `--soak` alone: a busy host crosses them.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from whole_run import BenchProcess

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.kv_events import CollectiveFinished, PortForecast, TransferFinished
from testbed.events.ordering import merge
from testbed.experiment.conclusion import conclude
from testbed.experiment.launch import prepare
from testbed.experiment.plan import read_plan
from testbed.experiment.reading import read_spec

pytestmark = [pytest.mark.root, pytest.mark.docker]

SPEC = Path(__file__).resolve().parents[2] / "fixtures" / "experiments" / "dualpath" / "vl-isolation.toml"
PORT, BURSTS = "pe1.cnic0", 20
FRAME_TYPE, TOS, TARGET = slice(12, 14), 15, slice(30, 34)


def frames_by_lane(capture: Path, address: str) -> Counter[int]:
    """IPv4 frames to `address` by service level, from a pcap file (libpcap's format: 24 and 16 bytes of headers)."""
    data, place, found = capture.read_bytes(), 24, Counter[int]()
    target = bytes(map(int, address.split(".")))
    while place < len(data):
        (length,) = struct.unpack_from("=I", data, place + 8)
        frame = data[place + 16 : place + 16 + 34]
        if frame[FRAME_TYPE] == b"\x08\x00" and frame[TARGET] == target:
            found[frame[TOS] >> 4] += 1
        place += 16 + length
    return found


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with KV on its own lane, captured at the port into pe1."""
    folder = tmp_path_factory.mktemp("isolation")
    head, _, _ = SPEC.read_text().partition("[systems.none]")
    path = folder / "own.toml"
    path.write_text(
        f'{head}[systems.own]\nkind = "lanes"\nkv = "own"\nbursts = {BURSTS}\n\n'
        '[[captures]]\nnode = "pe1"\ninterface = "cnic0"\nlimit_mib = 256\n'
    )
    prepared = prepare(read_spec(path), folder, clock="wall").folder.path
    bench = BenchProcess(prepared)
    try:
        assert bench.end() == 0
    finally:
        bench.close()
    return prepared


def test_lane_counters_and_capture_agree(pushed: Path) -> None:
    """Within 3 %; lane and service level have the same number in the paper's table."""
    plan = read_plan((pushed / "plan.json").read_bytes())
    (port,) = plan.node("pe1").ports
    captured = frames_by_lane(pushed / "captures" / f"{PORT}.pcap", port.address)
    counted = Counter[int]()
    for record in merge(pushed / "events"):
        event = record.event
        if isinstance(event, LinkMeasured) and event.port == PORT and event.lane >= 0:
            counted[event.lane] += event.packets
    for lane in (0, 2):
        assert captured[lane] > BURSTS * 64
        assert counted[lane] == pytest.approx(captured[lane], rel=0.03)


def test_collectives_and_kv_went_by_their_lanes(pushed: Path) -> None:
    records = list(merge(pushed / "events"))
    (forecast,) = (record.event for record in records if isinstance(record.event, PortForecast))
    assert forecast.kv == "own"
    done = Counter(record.node for record in records if isinstance(record.event, CollectiveFinished))
    assert done == {"pe0": BURSTS, "pe1": BURSTS}
    plan = read_plan((pushed / "plan.json").read_bytes())
    (port,) = plan.node("pe1").ports
    captured = frames_by_lane(pushed / "captures" / f"{PORT}.pcap", port.address)
    moved = sum(record.event.bytes for record in records if isinstance(record.event, TransferFinished))
    # KV: every packet of every WRITE. Collectives: 64 packets and a letter each, and acknowledgements of pe1's own.
    assert captured[2] == pytest.approx(moved / 4096, rel=0.03)
    assert captured[0] == pytest.approx(BURSTS * 67, rel=0.1)


@pytest.mark.soak
def test_the_whole_experiment_holds_what_it_expects(tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("80 s of an undisturbed host; looplane test --soak")
    run = prepare(read_spec(SPEC), tmp_path, clock="wall", text=SPEC.read_bytes())
    for trial in run.trials:
        bench = BenchProcess(trial.path)
        try:
            assert bench.end() == 0
        finally:
            bench.close()
    summary = conclude(run.folder)
    assert all(row.held for row in summary.expectations), summary.expectations
