from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui.api.ranges import MOST_PARTS, Span, Unsatisfiable, spans_of


@pytest.mark.parametrize(
    ("header", "spans"),
    [
        ("bytes=0-0", [Span(0, 1)]),
        ("bytes=5-", [Span(5, 10)]),
        ("bytes=-3", [Span(7, 10)]),
        ("bytes=-99", [Span(0, 10)]),
        ("bytes=2-99", [Span(2, 10)]),
        ("Bytes = 1-2", [Span(1, 3)]),
        ("bytes=0-1, 4-5 ,", [Span(0, 2), Span(4, 6)]),
        ("bytes=0-1,50-60", [Span(0, 2)]),
        ("bytes=0-9,0-9", []),  # longer than the file: the file is sent
        ("lines=1-2", []),
        ("bytes 1-2", []),
    ],
)
def test_what_is_asked_for(header: str, spans: list[Span]) -> None:
    assert spans_of(header, 10) == spans


@pytest.mark.parametrize(
    "header",
    ["bytes=", "bytes=-", "bytes=10-", "bytes=5-4", "bytes=x-y", "bytes=-0", "bytes=1-2-3", "bytes=٣-٤",
     "bytes=" + ",".join(f"{n}-{n}" for n in range(MOST_PARTS + 1)), f"bytes={'9' * 20}-"],
)  # fmt: skip
def test_what_names_no_byte_is_refused(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        spans_of(header, 10)


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=-1", "bytes=0-0"])
def test_an_empty_file_has_no_parts(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        spans_of(header, 0)


@given(st.text(max_size=60) | st.from_regex(r"\Abytes=(\d{0,3}-\d{0,3},?){0,6}\Z"), st.integers(0, 500))
def test_parts_lie_within_the_file_whatever_is_asked(header: str, size: int) -> None:
    try:
        spans = spans_of(header, size)
    except Unsatisfiable:
        return
    assert all(0 <= span.start < span.end <= size for span in spans)
    assert sum(span.length for span in spans) <= size
