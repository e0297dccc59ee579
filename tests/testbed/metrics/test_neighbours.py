from __future__ import annotations

from testbed.events.host_events import NeighbourMeasured, NeighbourStarted
from testbed.experiment.host_figures import host_lines, neighbour_figures
from testbed.metrics.fold import Folding
from testbed.metrics.neighbours import Neighbour, NeighbourFold
from tests.testbed.metrics.stories import MS, Story


def folded(*done: float) -> dict[str, Neighbour]:
    told = Story().at(0, "bench", NeighbourStarted("zip", "pbzip2", 4, 2, (0,), "pbzip2"))
    for number, each in enumerate(done, 1):
        told.at(1000 * number, "bench", NeighbourMeasured("zip", 1000 * MS, each, "MB", 400 * MS))
    found: dict[str, Neighbour] = Folding({"n": NeighbourFold()}).take_all(told.records()).result("n")
    return found


def test_a_neighbours_rate_is_what_it_did_over_the_time_it_was_watched() -> None:
    figures = neighbour_figures([folded(4.0, 6.0), folded(5.0)])
    assert (figures["zip"].rate, figures["zip"].cores) == (5.0, 0.4)
    assert dict(host_lines(None, figures)) == {
        "beside": "zip: pbzip2 in 4 threads, 2 containers: 5.00 MB/s on 0.40 cores"
    }


def test_one_that_was_never_measured_has_no_rate() -> None:
    assert neighbour_figures([folded()])["zip"].rate is None
    assert neighbour_figures([{}]) == {}
