from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.sweep import Place, count_places, count_requests, labels, places, points
from testbed.workload.agent_loads import TableTrajectories, turns_in
from testbed.workload.schedule import Workload

SWEEP = {"workload.arrivals.rate_per_s": [4, 8], "systems.blink.max_batch": [16, 32, 64]}


def test_points_are_crossed_and_the_last_path_varies_fastest() -> None:
    assert [tuple(value for _, value in point) for point in points(SWEEP)] == [
        (4, 16), (4, 32), (4, 64), (8, 16), (8, 32), (8, 64),
    ]  # fmt: skip
    assert points({}) == [()]


def test_compared_systems_run_side_by_side() -> None:
    told = places(["a", "b"], {"x": [1, 2]}, 2)
    assert [(place.system, place.point[0][1], place.repeat) for place in told] == [
        ("a", 1, 0), ("b", 1, 0), ("a", 1, 1), ("b", 1, 1), ("a", 2, 0), ("b", 2, 0), ("a", 2, 1), ("b", 2, 1),
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True),
    st.dictionaries(st.sampled_from(["x", "y.z"]), st.lists(st.integers(), min_size=1, max_size=3, unique=True)),
    st.integers(1, 3),
)
def test_the_count_is_the_count_and_labels_and_seeds_are_unique(
    systems: list[str], sweep: dict[str, list[int]], repeats: int
) -> None:
    told = places(systems, sweep, repeats)
    assert len(told) == count_places(len(systems), sweep, repeats)
    assert len(set(labels(told))) == len(told)
    assert len({place.seed(7) for place in told}) == len(told)


def test_a_row_more_changes_no_other_rows_seed() -> None:
    few = {label: place.seed(5) for place, label in _named(["a"], {"x": [1, 2]}, 1)}
    many = {label: place.seed(5) for place, label in _named(["b", "a", "c"], {"x": [3, 1, 2]}, 1)}
    assert many.items() >= few.items()


def _named(systems: list[str], sweep: dict[str, list[int]], repeats: int) -> list[tuple[Place, str]]:
    told = places(systems, sweep, repeats)
    return list(zip(told, labels(told), strict=True))


def test_everyone_is_asked_the_same_but_not_in_every_repeat() -> None:
    told = places(["a", "b"], SWEEP, 2)
    seeds = {(place.repeat, place.workload_seed(5)) for place in told}
    assert len(seeds) == 2


def test_values_that_look_alike_have_seeds_and_labels_of_their_own() -> None:
    told = places(["a"], {"x": [1, 1.0, "1", True, [1], {"k": "x" * 40}, {"k": "x" * 41}]}, 1)
    assert len(set(labels(told))) == len(told)
    assert len({place.seed(5) for place in told}) == len(told)


@pytest.mark.parametrize("value", ["a/b", "..", "x" * 200, "a:b,c", " ", {"kind": "poisson", "rate_per_s": 8}])
def test_labels_are_names_that_any_folder_takes(value: object) -> None:
    (label,) = labels(places(["a"], {"p.q": [value]}, 1))
    assert len(label) < 60
    assert all(letter.isalnum() or letter in "._=-" for letter in label), label
    assert label.startswith("a-q=")


def test_requests_are_counted_for_the_seed_that_the_first_trial_has() -> None:
    assert count_requests(Workload(requests=9), 5) == 9
    load = TableTrajectories(agents=4, found_trajectories=9, max_tokens=2_000, turns=6)
    (first,) = places(["a"], {}, 1)
    assert count_requests(Workload(trajectories=load), 5) == turns_in(load, first.workload_seed(5))
