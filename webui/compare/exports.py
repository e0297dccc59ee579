"""Comparisons and sweeps as tables that spreadsheets read: comma-separated, a header line, plain numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from testbed.comparison.comparison import RunDiff

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def diff_csv(diff: RunDiff) -> str:
    """A row for each setting and each figure."""
    letters = [side.letter for side in diff.sides]
    head = ["what", "path", "unit"]
    head += [f"{letter}{part}" for letter in letters for part in (" value", " lowest", " highest", " repeats")]
    head += [f"{letter} {part}" for letter in letters[1:] for part in ("delta", "relative", "reading", "ground")]
    rows: list[list[object]] = [
        ["run", "", "", *(cell for side in diff.sides for cell in (f"{side.run} {side.part}", "", "", side.repeats))],
        ["fidelity", "", "", *(cell for side in diff.sides for cell in (side.fidelity, "", "", ""))],
    ]
    for kind, settings in (("about", diff.about), ("differs", diff.settings), ("agrees", diff.agreeing)):
        rows += [
            [kind, one.path, one.unit, *(cell for value in one.values for cell in (value, "", "", ""))]
            for one in settings
        ]
    for row in diff.figures:
        told: list[object] = ["figure", row.metric, row.unit]
        for cell in row.cells:
            told += [cell.value, cell.low, cell.high, len(cell.repeats)]
        for change in row.changes[1:]:
            if change is not None:
                told += [change.delta, change.relative, change.reading, change.ground]
        rows.append(told)
    return table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The text of a table; rows that are too short are filled up."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(value) for value in row] + [""] * (len(head) - len(row)))
    return sheet.getvalue()


def _cell(value: object) -> str:
    """A value; text that a spreadsheet would take for a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
