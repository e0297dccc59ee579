from __future__ import annotations

import pytest

from testbed.events import schema
from testbed.events.log import Record
from testbed.metrics.fidelity import MEASURES, Fidelity, FidelityFold, Threshold, worst_of
from testbed.metrics.fold import Folding
from testbed.metrics.thresholds import THRESHOLDS
from testbed.units import MILLISECOND
from tests.testbed.metrics.stories import MS, Story, small_run, started, waited

SETTING = 400_000_000


def judged(records: list[Record]) -> Fidelity:
    found: Fidelity = Folding({"f": FidelityFold()}).take_all(records).result("f")
    return found


def threshold(fidelity: Fidelity, name: str) -> Threshold:
    return next(one for one in fidelity.thresholds if one.name == name)


def wall(
    dilation: float = 10.0,
    *,
    late_ms: float = 1.0,
    rate: int = SETTING // 2,
    drops: int = 0,
    resent: int = 0,
    icrc: int = 0,
    lag_ms: float = 0.1,
    interval_ms: int = 100,
    waited_ms: float = 50.0,
    stopped: int = 0,
    lost: int = 0,
    sequence: int = 0,
    changes: tuple[tuple[str, str], ...] = (),
    capture_lost: int = 0,
    drift_ms: float = 0.0,
) -> Story:
    """A quiet wall-clock run of two nodes; each argument makes one thing worse."""
    story = Story().at(-1, "dpu0", schema.NodeReady("dpu", 1)).at(-1, "host0", schema.NodeReady("host", 2))
    story.at(0, "bench", started("wall", dilation))
    wakes = schema.ClockMeasured(100, *[round(late_ms * MS)] * 3)
    story.at(100, "dpu0", wakes).at(200, "dpu0", wakes)
    story.at(
        100,
        "bench",
        schema.LinkMeasured("gpu0.cnic0", -1, interval_ms * MILLISECOND, 10**6, 1000, drops, rate, SETTING),
    )
    story.at(100, "gpu0-nic", schema.RnicMeasured("gpu0", 1000, 1000 - lost, resent, 0, icrc, sequence))
    story.at(390, "gpu0-nic", schema.NodeStopped(0))
    story.at(100, "bench", schema.WaitMeasured("node dpu0", 500 * MS, round(waited_ms * MS), MS, 25, stopped))
    for changed in changes:
        story.at(120, "bench", schema.HostChanged(*changed))
    story.at(400, "bench", schema.CaptureFinished("gpu0.cnic0", "x.pcap", 9, True, capture_lost, round(drift_ms * MS)))
    return story.at(50, "client0", schema.RequestSent("q1", 0, round(lag_ms * MS), 1, 1))


def test_a_quiet_run_is_faithful_and_prints_every_threshold() -> None:
    found = judged(wall().records())
    assert (found.verdict, found.reasons) == ("faithful", ())
    assert [one.name for one in found.thresholds] == list(THRESHOLDS)
    assert all(one.held for one in found.thresholds if one.name != "other processes")
    assert threshold(found, "lateness p99").measured == 0.1


@pytest.mark.parametrize(
    ("worse", "verdict", "reason"),
    [
        ({"late_ms": 8.0}, "degraded", "host busy: lateness p99 of dpu0 0.8 ms wall ÷ dilation, limit 0.5"),
        ({"late_ms": 21.0}, "invalid", "host busy: lateness p99 of dpu0"),
        ({"rate": SETTING * 105 // 100}, "degraded", "link over its setting of gpu0.cnic0 4.79 %, limit 2"),
        ({"rate": SETTING * 15}, "invalid", "link over its setting of gpu0.cnic0 1397 %"),
        ({"drops": 1}, "degraded", "drops of gpu0.cnic0 1000 packets per million, limit 0"),
        ({"drops": 50}, "invalid", "drops of gpu0.cnic0"),
        ({"resent": 2}, "degraded", "resent packets of gpu0 2000 packets per million, limit 1000"),
        ({"resent": 100}, "invalid", "resent packets of gpu0"),
        ({"icrc": 1}, "invalid", "ICRC errors of gpu0 1 packets, limit 0"),
        ({"waited_ms": 110}, "degraded", "host busy: run-queue wait of node dpu0 22 % of wall time, limit 20"),
        ({"waited_ms": 300}, "invalid", "host busy: run-queue wait of node dpu0"),
        ({"stopped": 1}, "degraded", "host busy: stopped of node dpu0 4 % of looks, limit 0"),
        ({"stopped": 5}, "invalid", "host busy: stopped of node dpu0"),
        ({"lost": 1}, "degraded", "lost frames of all NICs 1 packets, limit 0"),
        ({"lost": 200}, "invalid", "lost frames of all NICs"),
        ({"sequence": 1}, "degraded", "sequence errors of gpu0 1000 packets per million"),
        ({"sequence": 20}, "invalid", "sequence errors of gpu0"),
        ({"changes": (("lanes gpu0.cnic0", "gone"),)}, "invalid", "host changes of lanes gpu0.cnic0: gone"),
        ({"capture_lost": 3}, "degraded", "capture losses of gpu0.cnic0 3 frames"),
        ({"drift_ms": -2.0}, "degraded", "capture drift of gpu0.cnic0 2 ms"),
        ({"lag_ms": 6.0}, "degraded", "host busy: send lag p99 6 ms, limit 5"),
        ({"lag_ms": 60.0}, "invalid", "host busy: send lag p99"),
    ],
)
def test_what_is_too_much_is_named(worse: dict[str, float], verdict: str, reason: str) -> None:
    found = judged(wall(**worse).records())  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert len(found.reasons) == 1
    assert found.reasons[0].startswith(reason)
    assert [one.held for one in found.thresholds].count(False) == 1


def test_the_host_role_may_be_stopped_and_may_wait() -> None:
    story = wall().at(100, "bench", schema.WaitMeasured("node host0", 500 * MS, 400 * MS, MS, 25, 25))
    assert judged(story.records()).verdict == "faithful"


def test_frames_of_a_real_port_are_not_ours_to_count() -> None:
    story = wall(lost=500).at(-1, "bench", schema.HardwareEngaged("uplink", "compute", "eth1"))
    assert threshold(judged(story.records()), "lost frames").measured is None


def test_frames_to_a_node_that_was_killed_on_purpose_are_neither_lost_nor_resent_too_often() -> None:
    story = wall(lost=500, resent=200).at(1, "bench", schema.FaultInjected("storage1", "kill"))
    found = judged(story.records())
    assert threshold(found, "lost frames").measured is None
    assert threshold(found, "resent packets").measured is None


def test_frames_under_way_are_not_lost() -> None:
    """While a NIC has not counted for the last time, what one has sent and the other not received says nothing."""
    before_the_end = [record for record in wall(lost=500).records() if record.t < 390 * MS]
    found = judged(before_the_end)
    assert (found.verdict, threshold(found, "lost frames").measured) == ("faithful", None)


def test_a_nics_log_without_its_end() -> None:
    story = wall().at(0, "bench", schema.RunStarted("blink", "wall", 10.0, 1, 7, 1, ("dpu0",)))
    story.at(300, "dpu0", schema.NodeStopped(0)).at(10, "dpu0-nic", schema.NodeHeartbeat())
    assert judged(story.records()).reasons == ("incomplete log: no node.stopped of dpu0-nic",)


def test_a_node_with_few_wakes_has_no_p99_of_its_own() -> None:
    few = schema.ClockMeasured(8, MS, 40 * MS, 40 * MS)
    alone = wall().at(50, "client0", few)
    assert judged(alone.records()).verdict == "faithful"
    for node in range(13):
        alone.at(60, f"client{node}", few)
    found = judged(alone.records())
    assert found.reasons == ("host busy: lateness p99 of nodes with few wakes 4 ms wall ÷ dilation, limit 0.5",)
    only = Story().at(0, "bench", started("wall", 10.0), schema.CpuMeasured(1.0, 1.0)).at(1, "dpu0", few)
    assert threshold(judged(only.records()), "lateness p99").measured == 4.0


def test_a_node_that_never_had_to_wake_is_not_missing() -> None:
    story = wall().at(-1, "client0", schema.NodeReady("client", 3))
    assert judged(story.records()).reasons == ("no lateness reading of client0",)
    story.at(90, "client0", schema.ClockMeasured(0, 0, 0, 0))
    assert judged(story.records()).verdict == "faithful"


def test_at_the_limit_a_threshold_holds() -> None:
    story = wall(late_ms=5.0, waited_ms=100.0, rate=SETTING * 102 // 100, resent=1)
    assert judged(story.records()).verdict == "faithful"


def test_dilation_makes_a_late_wake_cost_less_true_time() -> None:
    assert judged(wall(1.0, late_ms=1.5).records()).verdict == "degraded"
    assert judged(wall(10.0, late_ms=1.5).records()).verdict == "faithful"


def test_a_wall_clock_run_without_readings_is_not_faithful() -> None:
    story = Story().at(-1, "dpu0", schema.NodeReady("dpu", 1)).at(-1, "host0", schema.NodeReady("host", 2))
    found = judged(story.at(0, "bench", started("wall", 10.0)).records())
    assert found.verdict == "degraded"
    assert found.reasons == ("no lateness reading of dpu0", "no reading of run-queue wait")
    assert threshold(found, "run-queue wait").held is None


def test_each_planned_node_has_a_beginning_and_an_end() -> None:
    nodes = ("client0", "dpu0", "gpu0", "host0")
    story = wall().at(-1, "gpu0", schema.NodeReady("gpu", 4))
    story.at(0, "bench", schema.RunStarted("blink", "wall", 10.0, 1, 7, 1, nodes))
    story.at(90, "gpu0", schema.ClockMeasured(0, 0, 0, 0))
    for node in ("client0", "dpu0", "host0"):
        story.at(300, node, schema.NodeStopped(0))
    found = judged(story.records())
    assert found.verdict == "invalid"
    assert found.reasons == (
        "incomplete log: no node.ready of client0",
        "incomplete log: no node.stopped of gpu0",
    )
    story.at(-1, "client0", schema.NodeReady("client", 3)).at(90, "client0", schema.ClockMeasured(0, 0, 0, 0))
    assert judged(story.records()).verdict == "degraded"
    # However it ended, its log is whole.
    story.at(300, "gpu0", schema.NodeStopped(137, "killed"))
    assert (judged(story.records()).verdict, judged(story.records()).reasons) == ("faithful", ())


def test_a_kernel_without_an_account_of_waits_is_named_and_not_blamed() -> None:
    found = judged(wall(waited_ms=-1e-6).records())
    assert found.verdict == "faithful"
    assert threshold(found, "run-queue wait").measured is None
    assert "no account of waits" in found.note


@pytest.mark.parametrize("log", ["host0", "host0-core", "dpu0"])
def test_what_runs_on_the_hosts_cores_is_measured_and_not_judged(log: str) -> None:
    """Neighbours make a host-driven server late, and a device that the experiment has put beside it: that is the
    figure and no fault of the run. A process of silicon's own is judged as ever, whatever runs on the host.
    """
    nodes = ("dpu0", "host0")
    story = wall().at(300, "dpu0", schema.NodeStopped(0)).at(300, "host0", schema.NodeStopped(0))
    story.at(-1, "client0", schema.NodeReady("client", 3)).at(90, "client0", schema.ClockMeasured(100, MS, MS, MS))
    story.at(92, "bench", waited(1, "node client0"))
    displaced = ("dpu0",) if log == "dpu0" else ()
    story.at(0, "bench", schema.RunStarted("blink", "wall", 10.0, 1, 7, 1, nodes, displaced))
    story.at(90, log, schema.ClockMeasured(1000, *[50 * MS] * 3))
    story.at(91, "bench", waited(98, f"node {log}"))
    found = judged(story.records())
    assert ("on cores of the host, so not asked to keep time: dpu0" in found.note) == bool(displaced)
    assert found.reasons == ()
    story.at(0, "bench", schema.RunStarted("blink", "wall", 10.0, 1, 7, 1, nodes))
    assert bool([reason for reason in judged(story.records()).reasons if log in reason]) == (log == "dpu0")


def test_readings_before_the_epoch_are_set_up() -> None:
    story = wall().at(-50, "dpu0", schema.ClockMeasured(10, MS, 900 * MS, 900 * MS))
    assert judged(story.at(-40, "bench", waited(100, "node dpu0")).records()).verdict == "faithful"


@pytest.mark.parametrize(("busy", "verdict"), [(60.0, "faithful"), (85.0, "degraded"), (99.0, "invalid")])
def test_strangers_on_the_cpu_disturb_host_work_and_nothing_else(busy: float, verdict: str) -> None:
    """Two cores for half a second: 0.05 s are a node's, 0.5 s a neighbour's; the rest of what was busy is nobody's."""

    def told(*, works: bool) -> Fidelity:
        story = wall().at(-1, "host0", schema.ProcessorCalibrated("api", 400.0, 1.1, 8 << 20)) if works else wall()
        story.at(100, "bench", schema.NeighbourMeasured("zip", 500 * MS, 1.0, "MB", 500 * MS))
        story.at(101, "bench", schema.WaitMeasured("node host0", 500 * MS, 400 * MS, 49 * MS, 25, 0))
        return judged(story.at(102, "bench", schema.CpuMeasured(99.0, busy, 2, 500 * MS)).records())

    found = told(works=True)
    assert found.verdict == verdict
    assert threshold(found, "other processes").measured == pytest.approx(max(0, busy - 55))
    assert told(works=False).verdict == "faithful"
    assert threshold(told(works=False), "other processes").held is None


@pytest.mark.parametrize(
    ("process", "judged_too"),
    [("node dpu0", True), ("nic gpu0", True), ("node host0", False)],
)
def test_strangers_disturb_silicon_that_does_not_go_first(process: str, judged_too: bool) -> None:
    """A host that refuses SCHED_FIFO, or somebody who takes it away: then whoever else runs slows it (fault C17)."""
    story = wall().at(101, "bench", schema.WaitMeasured(process, 500 * MS, 9 * MS, 49 * MS, 25, 0, fifo=False))
    found = judged(story.at(102, "bench", schema.CpuMeasured(99.0, 95.0, 2, 500 * MS)).records())
    assert found.verdict == ("invalid" if judged_too else "faithful")
    assert (threshold(found, "other processes").held is False) == judged_too
    assert (f"without SCHED_FIFO, so who else ran was judged: {process}" in found.note) == judged_too


def test_a_real_rnic_is_not_dilated_and_says_so() -> None:
    real = schema.HardwareEngaged("rnic", "dpu0", "mlx5_0")
    found = judged(wall(dilation=10.0).at(-1, "bench", real).records())
    assert found.verdict == "degraded"
    assert found.reasons == ("the wire of dpu0 is a real RNIC's, 10 times too fast at this dilation",)
    assert judged(wall(dilation=1.0, late_ms=0.1).at(-1, "bench", real).records()).verdict == "faithful"


def test_a_reading_over_too_short_a_time_says_nothing_of_a_rate() -> None:
    assert judged(wall(rate=SETTING * 5, interval_ms=10).records()).verdict == "faithful"


def test_the_simulated_clock_is_faithful_with_a_note_unless_the_log_has_a_gap() -> None:
    records = small_run()
    found = judged(records)
    assert (found.verdict, found.note) == ("faithful", "simulated clock: modelled time")
    assert [one.name for one in found.thresholds] == ["log gaps"]
    missing = next(record for record in records if record.node == "gpu0" and record.seq == 4)
    found = judged([record for record in records if record is not missing])
    assert found.verdict == "invalid"
    assert found.reasons == ("log gaps of gpu0 1 records, limit 0",)


def test_every_threshold_has_a_reason_and_a_measure() -> None:
    assert list(MEASURES) == list(THRESHOLDS)
    for limit in THRESHOLDS.values():
        assert limit.faithful <= limit.invalid
        assert len(limit.reason) > 40


def test_the_worst_verdict_of_several() -> None:
    assert worst_of([]) == "faithful"
    assert worst_of(["faithful", "invalid", "degraded"]) == "invalid"
    assert worst_of(["faithful", "degraded"]) == "degraded"


def test_a_slow_link_is_not_over_its_setting_by_the_packets_at_both_ends_of_a_reading() -> None:
    def over(packets: int) -> float:
        story = wall()
        # Half a second at 10 Mbit/s is 149 packets; the port's burst and the count of whole ones add two at most.
        rate = SETTING * packets // 149
        measured = schema.LinkMeasured("pe0.snic0", -1, 500 * MILLISECOND, packets * 4200, packets, 0, rate, SETTING)
        story.at(100, "bench", measured)
        (found,) = (one for one in judged(story.records()).thresholds if one.name == "link over its setting")
        return found.measured or 0.0

    assert over(151) < 0.1
    assert over(157) > 2
