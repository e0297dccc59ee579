"""The shipped isolation experiment under the simulated clock, packet by packet, against the arbiter's forecast."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.events.ordering import merge
from testbed.experiment.complaints import SpecError
from testbed.experiment.isolation_figures import IsolationFigures
from testbed.experiment.launch import prepare
from testbed.experiment.reading import read_spec
from testbed.experiment.simulation import simulate
from testbed.experiment.summary import SystemSummary, fold_trial, summarise_system
from testbed.metrics.latency import EVERYTHING

TOP = Path(__file__).resolve().parents[3]
SPEC = TOP / "fixtures" / "experiments" / "dualpath" / "vl-isolation.toml"


def figures(folder: Path, *overrides: str) -> dict[str, SystemSummary]:
    """By system."""
    run = prepare(read_spec(SPEC, overrides), folder, clock="simulated", run="20260101-000000-0a1b2c")
    found = {}
    for plan, trial in zip(run.plans, run.trials, strict=True):
        end = simulate(plan, trial)
        assert (end.outcome, end.detail) == ("passed", "")
        results = fold_trial(plan.system, plan.system, "", merge(trial.events))
        found[plan.system] = summarise_system([results], EVERYTHING)
    return found


def isolation(summary: SystemSummary) -> IsolationFigures:
    assert summary.isolation is not None
    return summary.isolation


SHORT = tuple(f"systems.{name}.bursts=12" for name in ("none", "own", "same"))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SystemSummary]:
    """A tenth of the bursts, and a floor over fewer low packets."""
    return figures(tmp_path_factory.mktemp("lanes"), *SHORT, "systems.floor.bursts=12")


def test_a_lane_of_its_own_leaves_collectives_alone(short: dict[str, SystemSummary]) -> None:
    alone, beside = isolation(short["none"]), isolation(short["own"])
    assert alone.bursts_us.worst is not None
    assert beside.bursts_us.worst is not None
    assert 1 < beside.bursts_us.worst / alone.bursts_us.worst < 1.05


def test_in_the_same_lane_bursts_wait_as_foretold(short: dict[str, SystemSummary]) -> None:
    found = isolation(short["same"])
    assert found.forecast_p50_us is not None
    assert found.p50_over_forecast == pytest.approx(1, abs=0.05)
    assert found.bursts_us.worst is not None
    assert found.bursts_us.worst > 2.5 * (isolation(short["none"]).bursts_us.worst or 0)


def test_kv_has_what_collectives_leave(short: dict[str, SystemSummary]) -> None:
    for name in ("own", "same"):
        assert isolation(short[name]).kv_kept == pytest.approx(1, abs=0.03)


def test_saturated_kv_keeps_the_exact_arbiters_floor(short: dict[str, SystemSummary]) -> None:
    """KV has one in four turns of the low table, now and then one in five: a letter that goes by the low table takes
    only 2 of the collectives' 192 units.
    """
    found = isolation(short["floor"])
    assert found.low_packets >= 8
    assert found.floor_over_forecast == pytest.approx(1, abs=0.1)


def test_the_wrong_lane_starves_collectives(tmp_path: Path) -> None:
    """KV in the high table and collectives in the low one: a packet for 240 of KV."""
    few = (
        "systems.own.kv=wrong",
        "systems.own.bursts=1",
        "systems.own.burst_packets=4",
        "systems.own.period=200000000",
    )
    found = isolation(figures(tmp_path, *SHORT, "systems.floor.bursts=1", *few)["own"])
    assert found.kv == "wrong"
    assert found.forecast_p50_us is not None
    assert found.bursts_us.worst is not None
    assert found.bursts_us.worst > 100 * 4 * 33
    assert found.bursts_us.worst == pytest.approx(found.forecast_p50_us, rel=0.3)


def test_the_roce_form_gives_kv_its_weight(tmp_path: Path) -> None:
    """One packet in fifty by weight, where the high limit leaves one in a thousand."""
    head, _, rest = SPEC.read_text().partition("[network.compute.lanes]")
    floor = "[systems.floor]" + rest.partition("[systems.floor]")[2].partition("[expect]")[0]
    path = tmp_path / "classes.toml"
    path.write_text(f'{head}[network.compute.classes]\nweights = "0:49,1:49,2:1,3:49"\n\n{floor}')
    spec = read_spec(path, ("systems.floor.bursts=4",))
    run = prepare(spec, tmp_path, clock="simulated", run="20260101-000000-0a1b2c")
    simulate(run.plans[0], run.trials[0])
    found = summarise_system([fold_trial("floor", "floor", "", merge(run.trials[0].events))], EVERYTHING)
    assert isolation(found).floor == pytest.approx(1 / 50, rel=0.05)
    assert isolation(found).floor_over_forecast == pytest.approx(1, abs=0.05)


def test_lanes_and_classes_do_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    path.write_text(SPEC.read_text().replace("[systems.none]", "[network.compute.classes]\n\n[systems.none]", 1))
    with pytest.raises(SpecError, match="lanes and classes do not go together"):
        read_spec(path)
