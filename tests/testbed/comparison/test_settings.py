"""What differs between experiments: after defaults and overrides, typed, by path, with units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.comparison.settings import (
    differences,
    expected_of,
    nanosecond_fields,
    point_words,
    settings_of,
    unit_of,
    words_of,
)
from testbed.experiment.reading import read_spec
from testbed.experiment.spec import Spec

EXPERIMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "experiments"
SETTING = st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text("ab", max_size=2))
SIDE = st.dictionaries(st.text("xyz.", min_size=1, max_size=4), SETTING, max_size=6)


def spec(*overrides: str, name: str = "blink/small") -> Spec:
    return read_spec(EXPERIMENTS / f"{name}.toml", overrides)


def changed(one: Spec, other: Spec, system: str = "blink") -> dict[str, tuple[object, ...]]:
    rows = differences([settings_of(one, system, {}), settings_of(other, system, {})])
    return {row.path: row.values for row in rows if row.differs}


def test_an_override_is_what_differs_and_nothing_else() -> None:
    assert changed(spec(), spec("systems.blink.max_batch=3")) == {"system.max_batch": (80, 3)}
    assert changed(spec(), spec("workload.arrivals.rate_per_s=7")) == {"workload.arrivals.rate_per_s": (20.0, 7.0)}


def test_a_default_that_is_written_out_differs_from_nothing() -> None:
    assert changed(spec("network.wire=flow", "repeats=1", "systems.blink.max_batch=80"), spec()) == {}


def test_two_systems_differ_by_their_settings_not_by_their_names() -> None:
    one = spec(name="dualpath/snics")
    rows = differences([settings_of(one, "one", {}), settings_of(one, "two", {})])
    assert [row.path for row in rows if row.differs] == ["system.storage_nics"]


def test_the_point_of_a_sweep_is_in_its_place() -> None:
    one = spec(name="dualpath/snics")
    found = settings_of(one, "one", {"network.storage.rate_gbit_s": 100})
    assert found["network.storage.rate_gbit_s"] == 100.0
    assert not any(path.startswith("sweep") for path in found)


def test_only_neighbours_that_a_system_has_are_its_settings() -> None:
    ladder = spec(name="blink/interference-ladder")
    for name, system in ladder.systems.items():
        told = {path.split(".")[1] for path in settings_of(ladder, name, {}) if path.startswith("neighbours.")}
        assert told == set(system.neighbours)


def test_bounds_of_other_systems_are_not_its_business() -> None:
    one = spec(name="dualpath/snics")
    found = expected_of(one, "one")
    assert found["expect.jct.failed"] == "equals 0"
    assert "expect.snic.ports" not in found
    assert found == expected_of(one, "one")
    assert "expect.ratio(systems.one.jct.total_s, systems.two.jct.total_s)" in found


@pytest.mark.parametrize(
    ("path", "unit", "words"),
    [
        ("network.storage.rate_gbit_s", "Gbit/s", "Network, storage, rate"),
        ("system.fetch_period", "ns", "Fetch period"),
        ("system.hbm_kv_bytes", "bytes", "Hbm kv"),
        ("time_limit_s", "s", "Time limit"),
        ("workload.arrivals.rate_per_s", "a second", "Workload, arrivals, rate"),
        ("seed", "", "Seed"),
    ],
)
def test_units_and_words(path: str, unit: str, words: str) -> None:
    assert (unit_of(path), words_of(path)) == (unit, words)


def test_whole_nanoseconds_are_known_from_their_classes() -> None:
    assert {"fetch_period", "scan_cost", "completion_patience"} <= nanosecond_fields()
    assert "max_batch" not in nanosecond_fields()


def test_a_point_in_words() -> None:
    point = {"network.storage.rate_gbit_s": 100, "systems.blink.max_batch": 4}
    assert point_words(point) == "rate 100 Gbit/s, max batch 4"


@given(SIDE)
def test_a_side_against_itself_has_no_difference(side: dict[str, bool | int | float | str]) -> None:
    assert not any(row.differs for row in differences([side, side]))


@given(SIDE, SIDE)
def test_differences_are_the_same_both_ways(
    one: dict[str, bool | int | float | str], other: dict[str, bool | int | float | str]
) -> None:
    there = {row.path: row for row in differences([one, other])}
    back = {row.path: row for row in differences([other, one])}
    assert there.keys() == back.keys() == one.keys() | other.keys()
    for path, row in there.items():
        assert row.values == back[path].values[::-1]
        assert row.differs == back[path].differs


def test_true_is_not_one_and_a_missing_setting_is_a_difference() -> None:
    assert differences([{"a": 1}, {"a": True}])[0].differs
    assert differences([{"a": 1}, {"a": 1.0}])[0].differs
    assert differences([{"a": 1}, {}])[0].differs
