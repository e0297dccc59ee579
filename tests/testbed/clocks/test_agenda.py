from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clocks.agenda import Agenda


def test_at_equal_times_the_older_appointment_comes_first() -> None:
    agenda = Agenda()
    a, b, c = (agenda.add_source() for _ in range(3))
    for source in (c, a, b):
        agenda.appoint(source, 5)
    assert [agenda.take() for _ in range(3)] == [(5, c), (5, a), (5, b)]
    assert agenda.next() is None
    with pytest.raises(IndexError):
        agenda.take()


def test_an_unchanged_appointment_keeps_its_place_and_a_new_one_goes_behind() -> None:
    agenda = Agenda()
    a, b = agenda.add_source(), agenda.add_source()
    agenda.appoint(a, 5)
    agenda.appoint(b, 5)
    agenda.appoint(a, 5)
    assert agenda.next() == (5, a)
    agenda.appoint(a, 6)
    agenda.appoint(a, 5)
    assert agenda.next() == (5, b)


def test_no_appointment_is_no_appointment() -> None:
    agenda = Agenda()
    a = agenda.add_source()
    agenda.appoint(a, 5)
    agenda.appoint(a, None)
    assert agenda.next() is None
    agenda.appoint(a, 5)
    assert agenda.take() == (5, a)


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9)))))
def test_it_is_the_plain_list_of_the_last_appointments(told: list[tuple[int, int | None]]) -> None:
    agenda = Agenda()
    for _ in range(4):
        agenda.add_source()
    model: dict[int, tuple[int, int]] = {}
    for ticket, (source, t) in enumerate(told):
        agenda.appoint(source, t)
        if t is None:
            model.pop(source, None)
        elif source not in model or model[source][0] != t:
            model[source] = (t, ticket)
    taken = []
    while agenda.next() is not None:
        taken.append(agenda.take())
    assert taken == [(t, source) for (t, _), source in sorted((place, source) for source, place in model.items())]
