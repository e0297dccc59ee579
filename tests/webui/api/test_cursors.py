from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.run_folder import new_run_id
from webui.api.cursors import BadCursor, Place, cursor_place, cursor_text

MOMENTS = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1), timezones=st.just(UTC))


@given(MOMENTS)
def test_a_cursor_leads_back_to_its_place(moment: datetime) -> None:
    place = Place(moment, new_run_id(datetime(2026, 1, 2, tzinfo=UTC)))
    assert cursor_place(cursor_text(place)) == place


@given(st.one_of(st.text(max_size=200), st.from_regex(r"\A[A-Za-z0-9_=-]{0,80}\Z")))
def test_any_other_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadCursor, match="cursor"):
        cursor_place(text)


@pytest.mark.parametrize("change", [lambda t: t + "=", lambda t: t[:-1], lambda t: t.swapcase(), lambda t: " " + t])
def test_one_place_has_one_text(change) -> None:
    text = cursor_text(Place(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), "20260102-030405-abcdef"))
    with pytest.raises(BadCursor):
        cursor_place(change(text))
