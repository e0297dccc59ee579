"""What stood around a run's systems, for its page: the host's part, neighbours, mitigations, recovery.

Of a finished run, from its summary, in the words of the report. Knows no system. A run that has none of it gives
nothing, and so does a summary of another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from testbed.experiment.host_figures import HostFigures, MitigationFigures, NeighbourFigures, host_lines
from testbed.experiment.recovery_figures import RecoveryFigures, recovery_lines
from webui.runs.folder import LONGEST_SUMMARY, folder_of, read_json


class Surroundings(msgspec.Struct, frozen=True):
    """The part of a system's summary that this is about."""

    host: HostFigures | None = None
    neighbours: dict[str, NeighbourFigures] = {}
    mitigations: dict[str, MitigationFigures] = {}
    recovery: RecoveryFigures | None = None


class Line(NamedTuple):
    """A row of the table."""

    system: str
    head: str
    words: str


def surroundings_of(run_id: str) -> list[Line]:
    """A row for each line that the report has about a system's surroundings."""
    summary = read_json(folder_of(run_id) / "summary.json", limit=LONGEST_SUMMARY) or {}
    systems = summary.get("systems")
    told = systems if isinstance(systems, Mapping) else {}
    return [line for name, system in told.items() for line in _lines(name, system)]


def _lines(system: str, told: Any) -> list[Line]:
    try:
        around = msgspec.convert(told, Surroundings)
    except msgspec.ValidationError:  # of another version
        return []
    lines = (*host_lines(around.host, around.neighbours, around.mitigations), *recovery_lines(around.recovery))
    return [Line(system, head, words) for head, words in lines]
