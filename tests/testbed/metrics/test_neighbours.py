from __future__ import annotations

from testbed.events.host_events import MitigationApplied, NeighbourMeasured, NeighbourStarted
from testbed.experiment.host_figures import host_lines, mitigation_figures, neighbour_figures
from testbed.metrics.fold import Folding
from testbed.metrics.neighbours import NeighbourFold, NeighbourState
from tests.testbed.metrics.stories import MS, Story


def folded(*done: float) -> NeighbourState:
    told = Story().at(0, "bench", NeighbourStarted("zip", "pbzip2", 4, 2, (0,), "pbzip2"))
    for number, each in enumerate(done, 1):
        told.at(1000 * number, "bench", NeighbourMeasured("zip", 1000 * MS, each, "MB", 400 * MS))
    found: NeighbourState = Folding({"n": NeighbourFold()}).take_all(told.records()).result("n")
    return found


def test_a_neighbours_rate_is_what_it_did_over_the_time_it_was_watched() -> None:
    figures = neighbour_figures([folded(4.0, 6.0), folded(5.0)])
    assert (figures["zip"].rate, figures["zip"].cores) == (5.0, 0.4)
    assert dict(host_lines(None, figures)) == {
        "beside": "zip: pbzip2 in 4 threads, 2 containers: 5.00 MB/s on 0.40 cores"
    }


def test_one_that_was_never_measured_has_no_rate() -> None:
    assert neighbour_figures([folded()])["zip"].rate is None
    assert neighbour_figures([NeighbourState()]) == {}


def test_a_mitigation_stands_beside_what_the_paper_found_and_what_it_costs() -> None:
    told = Story().at(-1, "bench", MitigationApplied("pinning", True, "api on core 1", 1.0))
    told.at(-1, "bench", MitigationApplied("cache_partition", False, "no resctrl"))
    found = mitigation_figures([Folding({"n": NeighbourFold()}).take_all(told.records()).result("n")])
    assert (found["pinning"].applied, found["pinning"].reserved_cores) == (True, 1.0)
    assert not found["cache_partition"].applied
    pinned, partitioned = (words for _, words in host_lines(None, {}, found))
    assert pinned.startswith("pinning in force, 1 cores reserved: api on core 1; the paper: the best single means")
    assert partitioned.startswith("cache_partition NOT in force: no resctrl; the paper: misses")


def test_one_that_was_not_in_force_in_one_repeat_was_not_in_force() -> None:
    def one(applied: bool) -> NeighbourState:
        told = Story().at(-1, "bench", MitigationApplied("priority", applied, "words"))
        state: NeighbourState = Folding({"n": NeighbourFold()}).take_all(told.records()).result("n")
        return state

    assert not mitigation_figures([one(True), one(False), one(True)])["priority"].applied
