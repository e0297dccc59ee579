"""The sentence on top of a comparison, and what must be said before anybody believes it. Made from rows, never guessed.

Pure: the same rows give the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.comparison.readings import Change, Ground, Reading
from testbed.comparison.rows import FigureRow, SideFacts
from testbed.comparison.wording import percent, sentence_of, several, signed

LEADS = ("ttft_ms.mean", "jct.total_s", "tpot_ms.mean", "throughput_tokens_per_s")
"""What the first sentence is about: the first of these that is apart, else the first that has a value."""
PRICES = ("ttft_ms.mean", "ttst_ms.mean", "tpot_ms.mean", "itl_ms.p99", "throughput_tokens_per_s", "requests.failed",
          "jct.total_s", "jct.in_objectives", "energy.mj_per_token")  # fmt: skip
"""Where a second sentence looks for the other side of the coin."""
_APART = (Reading.BETTER, Reading.WORSE, Reading.DIFFERENT)


def answer(sides: Sequence[SideFacts], rows: Sequence[FigureRow]) -> str:
    """One or two sentences for each side against the first."""
    if len(sides) < 2:
        return ""
    unfinished = [side for side in sides if not side.finished]
    if unfinished:
        names = " and ".join(side.letter for side in unfinished)
        return f"{names} {'has' if len(unfinished) == 1 else 'have'} no figures yet; what was asked can be compared."
    by_path = {row.metric: row for row in rows}
    return " ".join(_about(place, sides, by_path) for place in range(1, len(sides)))


def cautions(sides: Sequence[SideFacts]) -> tuple[str, ...]:
    """What speaks against trusting the figures."""
    found = []
    for side in sides:
        if side.fidelity == "invalid":
            why = f": {side.reasons[0]}" if side.reasons else ""
            found.append(f"{side.letter} is invalid{why}. Its figures say nothing about the system.")
        elif side.fidelity == "degraded":
            why = f": {side.reasons[0]}" if side.reasons else ""
            found.append(f"{side.letter} is degraded{why}. Small differences may be the host's.")
        if side.fault:
            found.append(f"The event logs of {side.letter} cannot be read ({side.fault}); its repeats are pooled.")
        if side.outcome in ("errored", "cancelled", "lost"):
            found.append(f"{side.letter} was {side.outcome}; its figures are of what it had done by then.")
    clocks = {side.clock for side in sides if side.clock}
    if len(clocks) > 1:
        found.append("The runs have different clocks: modelled time and time on a bench are not the same kind of time.")
    return tuple(found)


def _about(place: int, sides: Sequence[SideFacts], rows: dict[str, FigureRow]) -> str:
    told = [(rows[path], found) for path in LEADS if path in rows and (found := rows[path].changes[place]) is not None]
    told = [(row, found) for row, found in told if found.delta is not None]
    name = sides[place].letter
    if not told:
        return f"{name} and {sides[0].letter} have no latency or throughput in common."
    lead = next(((row, found) for row, found in told if found.reading in _APART), None)
    if lead is None:
        return f"{name} and {sides[0].letter} are alike: {_alike(told[0][0], told[0][1], sides, place)}"
    row, found = lead
    first = f"{name}’s {sentence_of(row.metric)} is {_by(row, found)}{_ground(found, sides, place)}."
    price = _price(row, found.reading, place, rows)
    return f"{first} {price}" if price else first


def _alike(row: FigureRow, found: Change, sides: Sequence[SideFacts], place: int) -> str:
    if found.reading is Reading.SAME:
        return f"the {sentence_of(row.metric)} is the same."
    if found.reading is Reading.WITHIN:
        return f"the {sentence_of(row.metric)} differs within the spread of {_repeats(sides, place)}."
    return f"the {sentence_of(row.metric)} cannot be told apart."


def _by(row: FigureRow, found: Change) -> str:
    assert found.delta is not None
    way = "lower" if found.delta < 0 else "higher"
    if found.relative is None or row.unit == "share":
        return f"{signed(abs(found.delta), row.unit).lstrip('+±')} {way}"
    said = percent(found.relative)
    return f"{said.lstrip('×')} times as high" if said.startswith("×") else f"{said.lstrip('+−±')} {way}"


def _ground(found: Change, sides: Sequence[SideFacts], place: int) -> str:
    if found.ground in (Ground.RANGES, Ground.ONE_RANGE):
        return f", outside the spread of {_repeats(sides, place)}"
    if found.ground is Ground.SINGLE:
        return " in one repeat each, so its spread is not known"
    return ", all repeats pooled"


def _repeats(sides: Sequence[SideFacts], place: int) -> str:
    ours, theirs = sides[place].repeats, sides[0].repeats
    return several(ours, "repeat") if ours == theirs else f"{several(theirs, 'repeat')} and {several(ours, 'repeat')}"


def _price(lead: FigureRow, reading: Reading, place: int, rows: dict[str, FigureRow]) -> str:
    other = {Reading.BETTER: Reading.WORSE, Reading.WORSE: Reading.BETTER}.get(reading)
    for path in PRICES:
        row = rows.get(path)
        found = row.changes[place] if row is not None else None
        if row is None or found is None or row.metric == lead.metric or found.reading is not other:
            continue
        opening = "The price: its" if other is Reading.WORSE else "In return its"
        return f"{opening} {sentence_of(path)} is {_by(row, found)}."
    return ""
