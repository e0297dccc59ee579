"""Experiment texts, read by the command's own reader: what is refused there is refused here, in the same words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import count_places, count_requests
from webui.benches.needs import needs_of_spec

HEADING = 120
"""A question of at most so many characters is a page's heading; a longer one gives way to the title."""
_SENTENCE_END = re.compile(r"(?<=[?])\s+")


class SpecFault(Exception):
    """A spec that cannot be run. `lines` has one sentence for each fault, `path` the place of the first."""

    def __init__(self, lines: list[str], path: str) -> None:
        self.lines = lines
        self.path = path
        super().__init__("; ".join(lines))


@dataclass(frozen=True)
class SpecFacts:
    """What pages and rows need to know of an experiment."""

    name: str
    question: str
    """The question if it is short enough for a heading, else the title."""
    about: str
    """What else the author says."""
    systems: tuple[str, ...]
    seed: int
    requests: int
    """How many the workload sends; 0 when it is open-ended, or when its systems send traffic of their own."""
    serves: bool
    """Whether outside clients can ask its first system, which is the one that `looplane serve` takes."""
    trials: int
    dilation: float
    expectations: int
    needs: tuple[str, ...] = ()
    """What an emulation of it needs of its bench (webui.benches.needs)."""

    @property
    def is_open_ended(self) -> bool:
        """A server for clients of one's own: `looplane serve`, not a run that ends by itself."""
        return self.requests == 0 and self.serves


def read_spec(text: str, *, overrides: list[str], where: str) -> SpecFacts:
    """The facts of a spec with its overrides. Raises SpecFault with every fault that the reader finds."""
    try:
        spec = spec_from_bytes(text.encode(), where, overrides)
    except SpecError as fault:
        path = fault.faults[0].path if fault.faults else ""
        raise SpecFault(fault.lines(), path) from None
    facts = facts_of(spec)
    if "\0" in facts.question + facts.about:
        raise SpecFault(["question, title: a NUL character, which no database keeps: leave it out"], "question")
    return facts


def facts_of(spec: Spec) -> SpecFacts:
    """The facts of a spec that has been read."""
    question, about = _heading(spec.question.strip(), spec.title.strip())
    return SpecFacts(
        name=spec.name,
        question=question,
        about=about,
        systems=tuple(spec.systems),
        seed=spec.seed,
        requests=count_requests(spec.workload, spec.seed),
        serves=any(SYSTEMS[next(iter(spec.systems.values())).kind].server),
        trials=count_places(len(spec.systems), spec.sweep, spec.repeats),
        dilation=spec.dilation,
        expectations=len(spec.expect),
        needs=needs_of_spec(spec),
    )


def _heading(question: str, title: str) -> tuple[str, str]:
    first, *rest = _SENTENCE_END.split(question, maxsplit=1)
    if first and len(first) <= HEADING:
        return first, " ".join([*rest, f"{title}."]) if rest else title
    return title, question
