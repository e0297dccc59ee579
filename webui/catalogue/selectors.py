"""The experiments in fixtures/experiments, read when asked for: a file that is changed or added shows at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from webui.runs.specs import SpecFacts, SpecFault, read_spec

NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,59}(?:/[a-z0-9][a-z0-9_-]{0,59}){0,5}\Z")


@dataclass(frozen=True)
class Experiment:
    """One shipped experiment."""

    name: str
    """Its path below fixtures/experiments, without the suffix: blink/demo."""
    text: str
    facts: SpecFacts | None
    fault: str = ""
    """Why it cannot be read; then there are no facts."""

    @property
    def question(self) -> str:
        """What it asks."""
        return self.facts.question if self.facts else self.name

    @property
    def about(self) -> str:
        """What else its author says."""
        return self.facts.about if self.facts else ""

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of its systems."""
        return self.facts.systems if self.facts else ()

    @property
    def file(self) -> str:
        """As the command line takes it."""
        return f"fixtures/experiments/{self.name}.toml"

    @property
    def group(self) -> str:
        """The folder it is in."""
        return self.name.split("/")[0]


def experiment_list() -> list[Experiment]:
    """All of them: those that end by themselves first, then by name."""
    root: Path = settings.EXPERIMENTS_FOLDER
    found = []
    for path in sorted(root.rglob("*.toml")):
        name = str(path.relative_to(root).with_suffix(""))
        if NAME.match(name):
            found.append(_read(name, path, path.stat().st_mtime_ns))
    return sorted(found, key=lambda one: (one.facts is None, bool(one.facts and one.facts.is_open_ended), one.name))


def experiment_names() -> list[str]:
    """Names of all files, read or not."""
    root: Path = settings.EXPERIMENTS_FOLDER
    names = (str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.toml"))
    return sorted(name for name in names if NAME.match(name))


def experiment_get(*, name: str) -> Experiment | None:
    """The experiment of this name, or None."""
    if not NAME.match(name):
        return None
    path: Path = settings.EXPERIMENTS_FOLDER / f"{name}.toml"
    if not path.is_file():
        return None
    return _read(name, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _read(name: str, path: Path, _changed: int) -> Experiment:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        return Experiment(name, "", None, f"{path.name}: {fault}")
    try:
        return Experiment(name, text, read_spec(text, overrides=[], where=f"{name}.toml"))
    except SpecFault as fault:
        return Experiment(name, text, None, str(fault))
