"""Every event type of the schema is in a recording (house style 20), and every recording can be read and folded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from testbed.events.log import Record, check_log, log_files, tag_of
from testbed.events.ordering import merge
from testbed.events.schema import AnyEvent
from testbed.experiment.export_csv import export_csv
from testbed.experiment.export_csv_traffic import export_traffic
from testbed.experiment.export_perfetto import export_perfetto
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.report import ReportFacts, report_text
from testbed.experiment.report_page import report_page
from testbed.experiment.summary import fold_trial, summarise
from testbed.metrics.fold import Folding
from testbed.metrics.spans import request_spans
from testbed.metrics.table import FOLDS
from tests.testbed.experiment.test_export_perfetto import check

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
NAMES = sorted(
    path.name for path in RECORDINGS.iterdir() if path.is_dir() and path.name not in {"specs", "__pycache__"}
)
HOSTED = ["host-driven", "tenants"]
"""Those of a server whose control loop is on the host."""
RINGS = [name for name in NAMES if not name.startswith("dualpath") and name not in HOSTED]
"""Those of a system with a ring of slots and the thirteen steps."""
MORE_LAUNCHES = {"recovered": 1, "prefixes": 2}
"""Beside one a token: what was under way when a scheduler died is done again; a prompt may be in three chunks."""
NOT_RECORDED = {
    "request.abandoned": "needs a client that goes away in the middle; tests/emulators cuts the connection",
    "device.faulted": "a scheduler that keeps CUDA's rules never causes one; tests/testbed/blink breaks them",
    "hardware.engaged": "needs a real part; tests/topologies/test_hardware.py lends a foreign veth",
    "verbs.measured": "only an emulation's NIC has round trips to measure; tests/parity reads them from one",
    "host.changed": "nobody meddled with the recorded runs; tests/scenarios/test_verdicts.py does",
    "watchdog.gave_up": "needs a scheduler that never comes back; tests/testbed/blink/test_recovery.py has one",
    "block.rejected": "needs a damaged replica; tests/testbed/dualpath damages some",
    "port.forecast": "only a run of kind lanes logs it; tests/testbed/dualpath/test_isolation.py has one",
}


def records(name: str) -> list[Record]:
    return list(merge(RECORDINGS / name))


def test_every_event_type_is_recorded_or_there_is_a_reason() -> None:
    seen = {tag_of(record.event) for name in NAMES for record in records(name)}
    schema = {str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
    assert schema - seen == set(NOT_RECORDED), (
        "make a recording that has it (fixtures/recordings/make.py), or say why not"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_log_keeps_what_its_writer_promises(name: str) -> None:
    assert all(check_log(path) > 0 for path in log_files(RECORDINGS / name))


@pytest.mark.parametrize("name", NAMES)
def test_its_experiment_is_still_a_valid_one(name: str) -> None:
    path = RECORDINGS / "specs" / f"{name}.toml"
    spec_from_bytes(path.read_bytes(), str(path))


@pytest.mark.parametrize("name", NAMES)
def test_every_fold_takes_it_and_a_snapshot_goes_on(name: str) -> None:
    taken = records(name)
    whole = Folding(FOLDS).take_all(taken)
    for cut in (1, len(taken) // 3, len(taken) - 1):
        late = Folding(FOLDS)
        late.restore(Folding(FOLDS).take_all(taken[:cut]).snapshot())
        assert late.take_all(taken[cut:]).snapshot() == whole.snapshot()
    assert whole.result("counts").faults == ()
    assert whole.result("ring").gaps == ()
    assert set(whole.result("ring").counts) == ({"empty"} if name in RINGS else set())


@pytest.mark.parametrize("name", RINGS)
def test_every_served_request_went_through_the_thirteen_steps(name: str) -> None:
    rows = request_spans(Folding(FOLDS).take_all(records(name)).result("timeline"))
    served = [row for row in rows if row.state == "done"]
    assert served
    for row in served:
        steps = dict(row.steps)
        assert set(steps) == set(range(1, 14))
        assert {steps[step].count for step in range(1, 7)} == {1}
        # One launch, one publication and one detokenised text a token, one after the other.
        tokens = len(row.token_times)
        assert all(tokens <= steps[step].count <= tokens + MORE_LAUNCHES.get(name, 0) for step in (7, 8))
        assert {steps[step].count for step in (9, 10)} == {tokens}
        order = [steps[step].first for step in (1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13)]
        assert order == sorted(order)


@pytest.mark.parametrize("name", HOSTED)
def test_every_request_of_a_host_driven_server_went_through_its_eight_steps(name: str) -> None:
    timeline = Folding(FOLDS).take_all(records(name)).result("timeline")
    rows = request_spans(timeline)
    assert [row.state for row in rows] == ["done"] * 3
    for row in rows:
        assert {step for step, _ in row.steps} == {1, 2, 7, 8, 9, 10, 12, 13}
    assert all(launch.node == "gpu0" and launch.started and launch.done for launch in timeline.launches)


def test_a_lost_node_shows_in_the_figures_and_every_agent_ends() -> None:
    trial = fold_trial("lost", "dualpath", "", records("dualpath-lost"))
    system = summarise("lost", "lost", [trial]).systems["dualpath"]
    assert system.jct is not None and system.accidents is not None and system.blocks is not None  # noqa: PT018
    assert (system.jct.running, system.jct.failed) == (0, 0)
    assert set(system.accidents.lost) == {"storage1", "de0"}
    assert system.accidents.turns_replaced > 0
    assert system.blocks.reached_engines == 0


@pytest.mark.parametrize("name", NAMES)
def test_reports_and_exports_take_it(name: str) -> None:
    taken = records(name)
    folding = Folding({fold: FOLDS[fold] for fold in ("timeline", "traffic")}).take_all(taken)
    timeline, traffic = folding.result("timeline"), folding.result("traffic")
    summary = summarise(name, name, [fold_trial(name, "blink", "", taken)])
    assert summary.outcome == "passed"
    assert "TTFT ms" in report_text(summary, ReportFacts(name))
    assert len(report_page(summary, ReportFacts(name), {name: timeline})) > 10_000
    check(json.loads(export_perfetto({name: timeline}, {name: traffic}))["traceEvents"])
    assert export_traffic({name: traffic}).transfers.count("\n") == len(traffic.transfers) + 1
    assert export_csv({name: timeline}).tokens.count("\n") == summary.systems["blink"].requests.tokens_received + 1
    assert msgspec.json.decode(msgspec.json.encode(summary))["fidelity"]["verdict"] in {"faithful", "degraded"}
