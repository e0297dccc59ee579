"""Sides of a real run held against each other, and the sentence on top."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from testbed.comparison.answer import answer, cautions
from testbed.comparison.comparison import RunDiff, compared, figure_row, headline_rows
from testbed.comparison.readings import Ground, Reading, cell_of
from testbed.comparison.rows import FigureRow, SideFacts
from testbed.comparison.sides import NoSuchPart, RunRead, Side, read_run
from testbed.experiment.run_folder import RunFolder


def side(read: RunRead, part: str) -> Side:
    variant, trial = read.variant(part)
    return Side(read, variant, trial)


def test_a_side_against_itself_has_nothing_apart(read: RunRead) -> None:
    found = compared([side(read, "blink"), side(read, "blink")])
    assert found.settings == ()
    assert found.complete
    for row in found.figures:
        assert row.changes[1] is not None
        assert row.changes[1].reading in (Reading.SAME, Reading.UNKNOWN)
    assert found.answer == "B and A are alike: the mean time to first token is the same."


def test_swapped_sides_mirror_every_figure(read: RunRead) -> None:
    one, other = side(read, "blink rate_per_s=200"), side(read, "other rate_per_s=200")
    there, back = compared([one, other]), compared([other, one])
    assert {row.path: row.values for row in there.settings} == {row.path: row.values[::-1] for row in back.settings}
    mirrored = {row.metric: row for row in back.figures}
    for row in there.figures:
        a, b = row.changes[1], mirrored[row.metric].changes[1]
        assert a is not None
        assert b is not None
        if a.delta is not None:
            assert b.delta is not None
            assert math.isclose(a.delta, -b.delta)
        assert (a.reading is Reading.BETTER) == (b.reading is Reading.WORSE)


def test_what_differs_is_the_batch(read: RunRead) -> None:
    found = compared([side(read, "blink"), side(read, "other")])
    assert {row.path: row.values for row in found.settings} == {
        "system.max_batch": (80, 4),
        "expect.ttft_ms.p50": ("at most 1000", None),
        "expect.requests.failed": (None, "equals 0"),
    }
    points = compared([side(read, "blink rate_per_s=50"), side(read, "blink rate_per_s=200")])
    assert [(row.path, row.values) for row in points.settings] == [("workload.arrivals.rate_per_s", (50.0, 200.0))]


def test_a_value_is_the_median_of_its_repeats(read: RunRead) -> None:
    found = compared([side(read, "blink"), side(read, "other")])
    row = next(row for row in found.figures if row.metric == "ttft_ms.mean")
    for cell in row.cells:
        assert len(cell.repeats) == 2
        assert cell.value == pytest.approx(sum(cell.repeats) / 2)
        assert cell.count == 24
    late = next(row for row in found.figures if row.metric == "ttft_ms.p90")
    assert len(late.cells[0].repeats) == 2
    assert not any(row.metric == "ttft_ms.p99" for row in headline_rows(found))


def test_a_single_repeat_is_a_side(read: RunRead) -> None:
    label = read.variants[0].trials[1]
    found = compared([side(read, read.variants[0].trials[0]), side(read, label)])
    assert [one.trial for one in found.sides] == list(read.variants[0].trials)
    assert found.settings == ()
    row = next(row for row in found.figures if row.metric == "ttft_ms.mean")
    assert row.changes[1] is not None
    assert row.changes[1].ground is Ground.SINGLE
    assert "one repeat each" in found.answer


def test_a_part_that_is_not_there_names_those_that_are(read: RunRead) -> None:
    with pytest.raises(NoSuchPart, match="has no 'vllm'; it has blink rate_per_s=50; other rate_per_s=50"):
        read.variant("vllm")


def test_a_run_without_digest_has_pooled_figures_and_no_spread(swept: RunFolder) -> None:
    read = read_run(swept)
    found = compared([side(read, "blink"), side(read, "other")])
    assert not found.complete
    row = next(row for row in found.figures if row.metric == "ttft_ms.mean")
    assert row.cells[0].repeats == ()
    assert row.changes[1] is not None
    assert row.changes[1].ground is Ground.POOLED


def test_a_folder_of_another_version_gives_its_figures(swept: RunFolder, tmp_path: object) -> None:
    folder = RunFolder(f"{tmp_path}/{swept.name}")
    folder.path.mkdir()
    folder.summary_file.write_bytes(swept.summary_file.read_bytes())
    folder.spec_json.write_text('{"warp": 9}')
    read = read_run(folder)
    assert read.spec is None
    found = compared([side(read, "blink rate_per_s=50"), side(read, "other rate_per_s=50")])
    assert found.settings == ()
    assert headline_rows(found)


def test_a_comparison_is_plain_json(read: RunRead) -> None:
    found = compared([side(read, "blink"), side(read, "other")])
    told = json.loads(json.dumps(msgspec.to_builtins(found)))
    assert msgspec.convert(told, RunDiff) == found


# --- words ---------------------------------------------------------------------------------------------------------


def facts(letter: str, *, repeats: int = 5, **more: object) -> SideFacts:
    plain = {
        "letter": letter, "run": "r", "part": "", "system": "s", "point": "", "trial": "", "repeats": repeats,
        "clock": "simulated", "outcome": "passed", "detail": "", "fidelity": "faithful", "reasons": (),
        "question": "", "title": "", "finished": True,
    }  # fmt: skip
    return SideFacts(**{**plain, **more})  # type: ignore[arg-type]


def row(metric: str, one: list[float], other: list[float]) -> FigureRow:
    return figure_row(metric, [cell_of(one, None, None), cell_of(other, None, None)])


FAST = row("ttft_ms.mean", [1180, 1250, 1340, 1400, 1470], [480, 500, 522.6, 540, 550])
SLOW = row("tpot_ms.mean", [11.0, 11.1, 11.2, 11.3, 11.4], [11.9, 12.0, 12.1, 12.2, 12.3])


def test_the_answer_of_the_mock() -> None:
    said = answer([facts("A"), facts("B")], [FAST, SLOW])
    assert said == (
        "B’s mean time to first token is 61 % lower, outside the spread of five repeats. "
        "The price: its mean time per output token is 8 % higher."
    )


def test_the_answer_is_worse_the_other_way_round_and_says_what_comes_in_return() -> None:
    said = answer(
        [facts("A"), facts("B")],
        [figure_row(one.metric, one.cells[::-1]) for one in (FAST, SLOW)],
    )
    assert said.startswith("B’s mean time to first token is 156 % higher")
    assert said.endswith("In return its mean time per output token is 7 % lower.")


def test_what_touches_is_called_alike() -> None:
    said = answer([facts("A"), facts("B")], [row("ttft_ms.mean", [10, 11, 12], [11, 12, 13])])
    assert said == "B and A are alike: the mean time to first token differs within the spread of five repeats."


def test_unlike_numbers_of_repeats_are_both_said() -> None:
    said = answer([facts("A", repeats=3), facts("B", repeats=2)], [row("ttft_ms.mean", [10, 11, 12], [1, 2])])
    assert "outside the spread of three repeats and two repeats" in said


def test_what_runs_still_has_no_answer() -> None:
    said = answer([facts("A"), facts("B", finished=False)], [])
    assert said == "B has no figures yet; what was asked can be compared."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"fidelity": "invalid", "reasons": ("CPU steal 12 %",)}, "B is invalid: CPU steal 12 %. Its figures say"),
        ({"fidelity": "degraded"}, "B is degraded. Small differences may be the host's."),
        ({"outcome": "lost"}, "B was lost; its figures are of what it had done by then."),
        ({"clock": "wall"}, "different clocks"),
        ({"fault": "BadRecord: gpu0: line 3"}, "logs of B cannot be read (BadRecord: gpu0: line 3)"),
    ],
)
def test_nobody_trusts_doubtful_figures_unwarned(more: dict[str, object], words: str) -> None:
    assert any(words in said for said in cautions([facts("A"), facts("B", **more)]))
    assert cautions([facts("A"), facts("B")]) == ()
