"""Appointments are kept in order of time, then of making."""

from testbed.network.appointments import Appointments


def test_order() -> None:
    kept: list[tuple[str, int]] = []
    appointments = Appointments()
    for name, moment in (("c", 5), ("a", 3), ("b", 3), ("late", 9)):
        appointments.at(moment, lambda now, name=name: kept.append((name, now)))  # type: ignore[misc]
    appointments.at(4, lambda now: appointments.at(now, lambda again: kept.append(("made meanwhile", again))))
    assert appointments.deadline() == 3
    appointments.advance(2)
    assert kept == []
    appointments.advance(5)
    assert kept == [("a", 3), ("b", 3), ("made meanwhile", 4), ("c", 5)]
    assert appointments.deadline() == 9
    appointments.advance(9)
    assert appointments.deadline() is None
