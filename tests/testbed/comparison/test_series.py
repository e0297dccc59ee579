"""A sweep as lines: every point in its place, bounds with their systems, what cannot be drawn told in one line."""

from __future__ import annotations

import pytest

from testbed.comparison.series import NoSweep, axes_of, sweep_of
from testbed.comparison.sides import RunRead, read_run, variants_of
from testbed.experiment.reading import spec_from_tables, tables_of
from testbed.experiment.run_folder import RunFolder

RATE = "workload.arrivals.rate_per_s"


def test_a_line_for_each_system_and_a_point_for_each_value(read: RunRead) -> None:
    found = sweep_of(read)
    assert (found.axis.path, found.axis.values, found.axis.numeric) == (RATE, (50, 200), True)
    assert found.metric == "ttft_ms.mean"
    (panel,) = found.panels
    assert panel.words == ""
    assert [line.system for line in panel.lines] == ["blink", "other"]
    for line in panel.lines:
        assert [point.x for point in line.points] == [50, 200]
        for point in line.points:
            assert len(point.cell.repeats) == 2
            assert point.verdict == "faithful"
            assert len(point.trials) == 2


def test_bounds_of_the_figure_are_drawn_and_no_others(read: RunRead) -> None:
    (bound,) = sweep_of(read, metric="ttft_ms.p50").limits
    assert (bound.system, bound.low, bound.high) == ("blink", None, 1000)
    (exact,) = sweep_of(read, metric="requests.failed").limits
    assert (exact.system, exact.low, exact.high) == ("other", 0, 0)
    assert sweep_of(read, metric="ttft_ms.mean").limits == ()


def test_settings_that_are_not_on_the_axis_make_panels(read: RunRead) -> None:
    assert read.spec is not None
    tables = tables_of(read.spec)
    tables["sweep"] = {RATE: [50, 200], "systems.blink.max_batch": [1, 2, 4]}
    spec = spec_from_tables(tables, "here")
    variants = variants_of(spec, {}, read.run)
    crossed = RunRead(read.run, spec, read.summary, {}, None, variants, {})
    assert len(variants) == 12
    by_rate = sweep_of(crossed, x=RATE)
    assert [panel.words for panel in by_rate.panels] == ["max batch 1", "max batch 2", "max batch 4"]
    by_batch = sweep_of(crossed, x="systems.blink.max_batch")
    assert [len(panel.lines[0].points) for panel in by_batch.panels] == [3, 3]


def test_words_of_an_axis_are_no_numbers(swept: RunFolder, read: RunRead) -> None:
    assert read.spec is not None
    tables = tables_of(read.spec) | {"sweep": {"network.wire": ["packet", "flow"]}}
    spec = spec_from_tables(tables, "here")
    (axis,) = axes_of(RunRead("r", spec, {}, {}, None, variants_of(spec, {}, "r"), {}))
    assert (axis.values, axis.numeric) == (("packet", "flow"), False)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ("network.wire", "", f"x: 'network.wire': {RATE}"),
        ("", "warp", "y: 'warp': a figure of this run, as ttft_ms.mean"),
    ],
)
def test_what_was_not_swept_or_measured_is_refused(read: RunRead, x: str, y: str, words: str) -> None:
    with pytest.raises(NoSweep) as caught:
        sweep_of(read, x, y)
    assert str(caught.value).startswith(words)


def test_a_run_without_a_sweep_has_no_axis(swept: RunFolder, read: RunRead) -> None:
    assert read.spec is not None
    tables = tables_of(read.spec)
    del tables["sweep"]
    spec = spec_from_tables(tables, "here")
    plain = RunRead("r", spec, {}, {}, None, variants_of(spec, {}, "r"), {})
    with pytest.raises(NoSweep, match="has no sweep"):
        sweep_of(plain)


def test_a_sweep_without_digest_has_points_without_spread(swept: RunFolder) -> None:
    (panel,) = sweep_of(read_run(swept)).panels
    assert all(point.cell.value is not None and not point.cell.repeats for point in panel.lines[0].points)
