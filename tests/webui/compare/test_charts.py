"""Charts as SVG: true to their values, escaped, and with a second cue beside colour."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.comparison.paper_rows import PaperLine
from testbed.comparison.readings import cell_of
from testbed.comparison.samples import thinned
from testbed.comparison.series import Axis
from webui.compare.charts import beside, curves, dots
from webui.compare.exports import table
from webui.compare.marks import mark, roof, ticks
from webui.compare.sweep_chart import is_logarithmic

SIZES = st.floats(1e-9, 1e12, allow_nan=False)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_every_repeat_is_a_dot_on_one_scale_from_0() -> None:
    svg = drawn(dots([cell_of([10, 20], None, None), cell_of([40.0], None, None)], ["A", "B"], "ms"))
    circles = [float(circle.get("cx", "")) for circle in svg.iter("circle")]
    assert len(circles) == 3
    zero = float(re.match(r"M([\d.]+) ", next(svg.iter("path")).get("d", ""))[1])  # type: ignore[index]
    assert (circles[1] - zero) / (circles[0] - zero) == pytest.approx(2, rel=0.02)
    assert (circles[2] - zero) / (circles[0] - zero) == pytest.approx(4, rel=0.02)
    assert svg.get("aria-label") == "A: 10 ms, 20 ms; B: 40 ms"


def test_no_value_no_chart() -> None:
    assert dots([cell_of([None], None, None)], ["A"], "") == ""
    assert curves([None, thinned([])], ["A", "B"], "x") == ""


@pytest.mark.parametrize("values", [[0.0], [-5.0, 5.0], [0.0, 0.0]])
def test_zero_and_negative_values_stay_on_the_chart(values: list[float]) -> None:
    svg = drawn(dots([cell_of(values, None, None)], ["A"], ""))
    assert all(0 <= float(circle.get("cx", "")) <= 340 for circle in svg.iter("circle"))


@given(st.lists(SIZES, min_size=1, max_size=50), st.lists(SIZES, min_size=1, max_size=50))
def test_curves_stay_inside_and_say_their_medians(ones: list[float], others: list[float]) -> None:
    svg = drawn(curves([thinned(ones), thinned(others)], ["A", "B"], "<Gaps>"))
    assert "<Gaps>. A: " in svg.get("aria-label", "")
    for path in svg.iter("path"):
        if "curve" in path.get("class", ""):
            for x in re.findall(r"H([\d.]+)", path.get("d", "")):
                assert 33 <= float(x) <= 389


def test_a_median_is_that_of_the_table_and_two_near_0_do_not_write_over_each_other() -> None:
    svg = drawn(curves([thinned([1, 2, 4, 500]), thinned([1, 2, 6, 500]), thinned([1, 3, 7, 500])], list("ABC"), "x"))
    assert svg.get("aria-label") == "x. A: 4 values, median 3 ms; B: 4 values, median 4 ms; C: 4 values, median 5 ms"
    labels = [text for text in svg.iter("text") if text.get("class", "").startswith("v ")]
    assert len({text.get("y") for text in labels}) == 3


def test_six_sides_have_six_shapes() -> None:
    shapes = {re.sub(r"[\d.\-]+", "", str(mark(place, 9, 9))) for place in range(6)}
    # Ring and disc are both circles; one is filled, which the stylesheet does.
    assert len(shapes) == 5


def test_ours_beside_the_papers_says_the_distance() -> None:
    lines = [PaperLine("A", "blink", 110.0, 100.0, 120.0, 100.0), PaperLine("B", "vllm", None, None, None, 50.0)]
    svg = beside(lines, [0, 1], "ms")
    assert "+10 %" in svg
    assert drawn(svg).get("aria-label") == "A: paper 100 ms, ours 110 ms; B: paper 50 ms, ours –"


@given(SIZES)
def test_a_roof_is_above_and_near(value: float) -> None:
    assert value * 0.999 <= roof(value) <= value * 2.01


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9), st.integers(2, 8))
def test_ticks_are_round_inside_and_few(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert len(found) <= most + 2
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)


@pytest.mark.parametrize(
    ("values", "logarithmic"), [((1, 2, 32), False), ((1, 10, 100), True), ((0, 100), False), ((-1, 100), False)]
)
def test_wide_axes_are_logarithmic(values: tuple[int, ...], logarithmic: bool) -> None:
    assert is_logarithmic(Axis("x", "x", "", values, True)) is logarithmic


def test_a_spreadsheet_takes_no_cell_for_a_formula() -> None:
    rows = table(["a"], [["=1+1"], ["-x"], [-1.5], [None], [True]]).splitlines()
    assert rows == ["a", "'=1+1", "'-x", "-1.5", '""', "True"]
