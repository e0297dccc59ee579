"""Schedulers that die under the simulated clock: told by the bench, missed by the DPU, replaced by the owner."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from testbed.events.blink_events import SchedulerRestarted, WatchdogFired, WatchdogGaveUp
from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent
from testbed.events.fidelity_events import FaultInjected
from testbed.events.log import Record
from testbed.events.ordering import merge
from testbed.events.run_events import NodeHeartbeat, NodeStopped
from testbed.events.schema import RequestArrived, SlotFound, TokensDetokenised
from testbed.experiment.complaints import SpecError
from testbed.experiment.launch import prepare
from testbed.experiment.plan import FaultPlan
from testbed.experiment.reading import read_spec
from testbed.experiment.simulated_faults import KILLED, OWNER_LOOK
from testbed.experiment.simulation import SimulationEnd, simulate
from testbed.experiment.spec import FaultKind
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary
from testbed.units import MILLISECOND

EXPERIMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "experiments"
SMALL = EXPERIMENTS / "blink" / "small.toml"
DEATH = 'faults=[{node="gpu0", at_s=0.15, kind="%s"}]'


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


def ran(folder: Path, vocabulary: Vocabulary, *overrides: str) -> tuple[SimulationEnd, list[Record], Path]:
    run = prepare(read_spec(SMALL, overrides), folder, clock="simulated", run="20260101-000000-0a1b2c")
    end = simulate(run.plans[0], run.trials[0], vocabulary=vocabulary)
    return end, list(merge(run.trials[0].events)), run.trials[0].events


def said(records: list[Record]) -> dict[str, str]:
    names = {record.event.request: record.event.name for record in records if isinstance(record.event, RequestArrived)}
    texts = dict.fromkeys(names.values(), "")
    for record in records:
        if isinstance(record.event, TokensDetokenised):
            texts[names[record.event.request]] += record.event.text
    return texts


@pytest.mark.parametrize(("kind", "kv"), [("kill-scheduler", "recomputed"), ("hang-scheduler", "kept")])
def test_streams_go_on_and_say_what_they_would_have_said(
    tmp_path: Path, vocabulary: Vocabulary, kind: str, kv: str
) -> None:
    _, undisturbed, _ = ran(tmp_path / "whole", vocabulary)
    end, records, _ = ran(tmp_path / "struck", vocabulary, DEATH % kind, f'systems.blink.restored_kv="{kv}"')
    assert (end.outcome, end.detail) == ("passed", "")
    assert sum(isinstance(record.event, RequestFinished) for record in records) == 8
    assert said(records) == said(undisturbed)
    (told,) = [record for record in records if isinstance(record.event, FaultInjected)]
    (fired,) = [record for record in records if isinstance(record.event, WatchdogFired)]
    (back,) = [record for record in records if isinstance(record.event, SchedulerRestarted)]
    assert (told.t, told.event.what, told.event.kind) == (150 * MILLISECOND, "gpu0", kind)
    assert told.t < fired.t <= told.t + 210 * MILLISECOND
    assert 5 * MILLISECOND - OWNER_LOOK <= back.t - fired.t <= 5 * MILLISECOND + OWNER_LOOK
    assert bool(back.event.running) == (kv == "kept")


def test_a_node_without_a_scheduler_writes_nothing_and_its_log_ends_with_its_successor(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    _, records, _ = ran(tmp_path, vocabulary, DEATH % "kill-scheduler")
    own = [record for record in records if record.node == "gpu0"]
    back = next(record.t for record in own if isinstance(record.event, SchedulerRestarted))
    assert not [record for record in own if 150 * MILLISECOND < record.t < back]
    assert [record.t for record in own if isinstance(record.event, NodeHeartbeat)][:2] == [
        100 * MILLISECOND,
        400 * MILLISECOND,
    ]
    (stopped,) = [record.event for record in own if isinstance(record.event, NodeStopped)]
    assert stopped.code == 0


def test_a_scheduler_that_nobody_missed_is_dead_at_the_end(tmp_path: Path, vocabulary: Vocabulary) -> None:
    end, records, _ = ran(
        tmp_path, vocabulary, DEATH % "kill-scheduler", "systems.blink.watchdog_patience=0", "time_limit_s=1"
    )
    assert end.outcome == "errored"
    codes = {record.node: record.event.code for record in records if isinstance(record.event, NodeStopped)}
    assert codes == {"client0": 0, "dpu0": 0, "gpu0": KILLED, "host0": 0}


TWO_GPUS = (
    "systems.blink.gpus=2", "workload.requests=16", 'workload.arrivals={kind="poisson",rate_per_s=40}',
    "systems.blink.restart_limit=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> dict[str, str]:
    return said(ran(tmp_path_factory.mktemp("whole"), vocabulary, *TWO_GPUS)[1])


def ends(records: list[Record]) -> dict[str, str]:
    """How each request that was sent ended at the client: nothing, an error, or "hangs"."""
    found = {record.event.name: "hangs" for record in records if isinstance(record.event, RequestSent)}
    for record in records:
        if isinstance(record.event, RequestFinished | RequestFailed):
            assert found[record.event.name] == "hangs", "it has ended twice"
            found[record.event.name] = "" if isinstance(record.event, RequestFinished) else record.event.error
    return found


@pytest.mark.parametrize(
    ("deaths", "lost"),
    [
        ([(150, "kill-scheduler")], False),
        ([(150, "hang-scheduler")], False),
        # The second is one more than the watchdog puts up with: it gives the ring up.
        ([(150, "kill-scheduler"), (420, "kill-scheduler")], True),
        ([(150, "kill")], True),
    ],
)
def test_where_one_of_two_gpus_dies_every_request_goes_on_or_is_told(
    tmp_path: Path,
    vocabulary: Vocabulary,
    undisturbed: dict[str, str],
    deaths: list[tuple[int, FaultKind]],
    lost: bool,
) -> None:
    run = prepare(read_spec(SMALL, TWO_GPUS), tmp_path, clock="simulated", run="20260101-000000-0a1b2c")
    # By a plan, since no experiment may ask for the death of a whole GPU node.
    faults = tuple(FaultPlan("gpu0", at * MILLISECOND, kind) for at, kind in deaths)
    end = simulate(msgspec.structs.replace(run.plans[0], faults=faults), run.trials[0], vocabulary=vocabulary)
    records = list(merge(run.trials[0].events))
    assert (end.outcome, end.detail) == ("passed", "")
    names = {record.event.request: record.event.name for record in records if isinstance(record.event, RequestArrived)}
    rings = {
        names[record.event.request]: record.event.ring for record in records if isinstance(record.event, SlotFound)
    }
    ended, texts = ends(records), said(records)
    failed = {name for name, error in ended.items() if error}
    assert {ended[name] for name in failed} == ({"unavailable"} if lost else set())
    # What the other GPU serves is untouched, and what was streamed is what would have been, to the end or cut off.
    assert set(rings.values()) == {"gpu0", "gpu1"}
    assert all(rings[name] == "gpu0" for name in failed)
    assert {name: texts[name] for name in ended if name not in failed} == {
        name: text for name, text in undisturbed.items() if name not in failed
    }
    assert all(undisturbed[name].startswith(texts[name]) for name in failed)
    told = [record.event for record in records if isinstance(record.event, WatchdogFired | WatchdogGaveUp)]
    assert {event.ring for event in told} == (set() if deaths[0][1] == "kill" else {"gpu0"})


def test_the_same_deaths_twice_write_the_same_bytes(tmp_path: Path, vocabulary: Vocabulary) -> None:
    logs = []
    for attempt in ("a", "b"):
        _, _, events = ran(tmp_path / attempt, vocabulary, DEATH % "kill-scheduler")
        logs.append({path.name: path.read_bytes() for path in sorted(events.iterdir())})
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("experiment", "fault", "words"),
    [
        ("blink/small.toml", '{node="dpu0", at_s=1, kind="kill-scheduler"}', "one of gpu0"),
        ("blink/small.toml", '{node="gpu0", at_s=1}', "this system has no node that may die"),
        ("blink/small.toml", '{node="gpu0", at_s=1, kind="maim"}', "kill-scheduler"),
        ("dualpath/small.toml", '{node="pe0", at_s=1, kind="hang-scheduler"}', "no scheduler that is restarted"),
    ],
)
def test_deaths_that_make_no_sense_are_refused(experiment: str, fault: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_spec(EXPERIMENTS / experiment, [f"faults=[{fault}]"])


def test_a_scheduler_may_die_as_often_as_one_likes() -> None:
    twice = ", ".join(f'{{node="gpu0", at_s={second}, kind="kill-scheduler"}}' for second in (1, 2))
    assert len(read_spec(SMALL, [f"faults=[{twice}]"]).faults) == 2
