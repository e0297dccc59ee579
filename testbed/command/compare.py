"""`looplane compare RUN RUN …`: what differs between finished runs, and what came of it; as the console's page says it.

A side is a run (folder, id or `last`), or RUN:SYSTEM, RUN:"SYSTEM POINT", RUN:TRIAL. Reads the runs' logs and writes
nothing of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.finished_run import find_run
from testbed.comparison.comparison import MOST_SIDES, RunDiff, compared, headline_rows
from testbed.comparison.digest import make_digest
from testbed.comparison.phrases import change_words, range_words, reading_words, setting_words, spread_words
from testbed.comparison.sides import NoSuchPart, RunRead, Side, read_run
from testbed.comparison.wording import figure, several


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sides."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN[:PART]", help="a run folder, a run id, or last; behind it a system or a trial"
    )
    parser.add_argument("--all", action="store_true", help="every setting and figure, not the telling ones alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def main(arguments: argparse.Namespace) -> int:
    """Exit code 0 whatever differs; 2 where something cannot be compared."""
    if len(arguments.runs) > MOST_SIDES:
        raise CommandError(f"{len(arguments.runs)} runs: at most {MOST_SIDES} can be compared", ExitCode.BAD_INPUT)
    diff = compared(_sides(arguments.runs))
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(diff), indent=1).decode() + "\n")
    else:
        print("\n".join(lines_of(diff, every=arguments.all)))
    return ExitCode.PASSED


def _sides(told: Sequence[str]) -> list[Side]:
    reads: dict[str, RunRead] = {}
    named: list[tuple[RunRead, str]] = []
    for text in told:
        run, part = (text, "") if Path(text).exists() else text.partition(":")[::2]
        if run not in reads:
            folder = find_run(run)
            with tempfile.TemporaryDirectory() as place:
                reads[run] = read_run(folder, make_digest(folder, Path(place)))
        named.append((reads[run], part))
    if len(named) == 1 and not named[0][1]:
        (read, _) = named[0]
        systems = {variant.system: variant.name for variant in reversed(read.variants)}
        named = [(read, name) for name in reversed(systems.values())][:MOST_SIDES]
    if len(named) < 2:
        raise CommandError(f"{told[0]}: has a single system; name a second run", ExitCode.BAD_INPUT)
    return [_side(read, part) for read, part in named]


def _side(read: RunRead, part: str) -> Side:
    try:
        return Side(read, *read.variant(part))
    except NoSuchPart as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault


def lines_of(diff: RunDiff, *, every: bool = False) -> Iterator[str]:
    """The comparison for a terminal."""
    for side in diff.sides:
        told = [side.system, side.point, side.trial, several(side.repeats, "repeat"), side.outcome, side.fidelity]
        yield f"{side.letter}  {side.run}  {', '.join(filter(None, told))}"
    yield ""
    yield diff.answer
    yield from (f"! {words}" for words in diff.cautions)
    yield ""
    total = len(diff.settings) + len(diff.agreeing)
    yield f"What differs ({len(diff.settings)} of {total} settings)"
    kinds = any(row.path == "system.kind" for row in diff.settings) and not every
    shown = [row for row in diff.settings if row.shared or not kinds]
    differing = [*shown, *(row for row in diff.about if row.differs)]
    yield from _table([[row.path, *(setting_words(value, row.unit) for value in row.values)] for row in differing])
    if len(shown) < len(diff.settings):
        yield f"  and {len(diff.settings) - len(shown)} that only one kind of system has (--all shows them)"
    yield ""
    yield f"What came of it ({spread_words(diff.sides)})"
    rows = []
    for row in diff.figures if every else headline_rows(diff):
        cells = [f"{figure(cell.value, row.unit)} {range_words(cell, row.unit)}".rstrip() for cell in row.cells]
        held = [change for change in row.changes if change is not None]
        rows.append([row.title, *cells, *(f"{change_words(row, one)}  {reading_words(one)}" for one in held)])
    yield from _table(rows)


def _table(rows: list[list[str]]) -> Iterator[str]:
    """Columns as wide as they need to be."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
