"""The same requests of several sides, in the same order, for one picture on one axis. Moments are since each side's
first sending, in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.comparison.comparison import LETTERS
from testbed.comparison.digest import LaneMarks
from webui.compare.page import variant_words
from webui.compare.selectors import Compared


@dataclass(frozen=True)
class SideLanes:
    """One side's requests."""

    letter: str
    name: str
    trial: str
    requests: int
    """How many it has in all."""
    lanes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Lanes:
    """All sides; their lanes stand in the same order, an empty object where a side lacks a request."""

    matched: str
    """name: the same requests by their names; order: by their place, since names are not shared."""
    sides: list[SideLanes]


def lanes_of(sides: Sequence[Compared]) -> Lanes:
    """The lanes of the sides that have been read, matched by name where names are shared."""
    lettered = zip(LETTERS, sides, strict=False)
    known = [(letter, one, one.side.detail.lanes if one.side.detail else ()) for letter, one in lettered]
    by_name = [{lane.name: lane for lane in lanes} for _, _, lanes in known]
    shared = [name for name in by_name[0] if name and all(name in other for other in by_name)] if by_name else []
    least = min((len(lanes) for _, _, lanes in known), default=0)
    named = len(shared) * 2 >= least > 0
    order = [[lanes[name] for name in shared] for lanes in by_name] if named else [list(lanes) for _, _, lanes in known]
    return Lanes(
        "name" if named else "order",
        [
            SideLanes(
                letter,
                variant_words(one.side.variant),
                one.side.trial or one.side.variant.trials[0],
                one.side.detail.requests if one.side.detail else 0,
                [_plain(lane, lanes[0].start if lanes else 0) for lane in ordered],
            )
            for (letter, one, lanes), ordered in zip(known, order, strict=True)
        ],
    )


def _plain(lane: LaneMarks, zero: int) -> dict[str, Any]:
    return {
        "name": lane.name,
        "state": lane.state,
        "start": lane.start - zero,
        "end": lane.end - zero,
        "phases": [{"what": what, "start": start - zero, "end": end - zero} for what, start, end in lane.phases],
        "tokens": [t - zero for t in lane.tokens],
        "pauses": [[start - zero, end - zero] for start, end in lane.pauses],
    }
