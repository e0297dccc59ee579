"""The table in docs/models/workload.md is the client's table."""

from __future__ import annotations

from pathlib import Path

from testbed.workload.client import MOVES, Progress, Step

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "models" / "workload.md").read_text()


def test_the_page_shows_every_move_and_no_other() -> None:
    table = next(block for block in PAGE.split("\n\n") if block.startswith("| State"))
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("| ")]
    head = rows[0]
    steps = [Step(word.strip()) for word in head[1:]]
    shown = {}
    for row in rows[1:]:
        for state in row[0].split(","):
            for step, after in zip(steps, row[1:], strict=True):
                if after.strip() != "–":
                    shown[Progress(state.strip()), step] = Progress(after.strip())
    assert shown == MOVES
