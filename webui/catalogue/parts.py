"""The launch form as a tree of parts: single values, sections, alternatives, tables with names of their own.

Plain data for templates and for whoever changes a file by it. Knows no schema and no request: `webui.catalogue.fields`
makes the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from webui.catalogue.toml_text import value_text

MISSING = object()
NONE = "none"
"""The choice of an optional part that leaves it out."""


@dataclass
class Field:
    """One value."""

    path: str
    name: str
    """Of the input. Alternatives of one path have different names."""
    label: str
    control: str
    """number, select, text, or toml: a list or table, as a file spells it."""
    whole: bool
    """A number without a fraction."""
    stated: Any
    """What the file says, or else the default; None where there is neither."""
    default: Any
    """What holds in a table that does not say it; MISSING where it must."""
    value: str
    """As the input shows it."""
    told: bool
    """The file says it."""
    help: str = ""
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    faults: list[str] = field(default_factory=list)

    form = "field"

    @property
    def own_faults(self) -> list[str]:
        """As the other parts have them."""
        return self.faults

    @property
    def is_changed(self) -> bool:
        """What is shown is not what the file says."""
        return self.value != shown_text(self.stated, self.control)

    @property
    def id(self) -> str:
        """For labels."""
        return element_id(self.name)

    @property
    def range(self) -> str:
        """The bounds in words."""
        low, high = (None if end is None else bound_text(end) for end in (self.low, self.high))
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else f"at most {high}" if high else ""


@dataclass
class Section:
    """A table: its fields, and what is inside them."""

    path: str
    title: str
    parts: tuple[Part, ...]
    told: bool
    help: str = ""
    tag: str = ""
    """The kind that it is of, where a file must say it."""

    form = "section"

    @property
    def is_changed(self) -> bool:
        """Something in it is."""
        return any(part.is_changed for part in self.parts)

    @property
    def faults(self) -> list[str]:
        """Of everything in it."""
        return [fault for part in self.parts for fault in part.faults]

    @property
    def shown(self) -> list[Part]:
        """What the file says, what is changed or wrong, and all of a short table."""
        return [part for part in self.parts if self._matters(part)]

    @property
    def folded(self) -> list[Part]:
        """The rest, which is as it is by default."""
        return [part for part in self.parts if not self._matters(part)]

    def _matters(self, part: Part) -> bool:
        return len(self.parts) <= 8 or part.told or part.is_changed or bool(part.faults)

    @property
    def told_count(self) -> int:
        """How many values the file says."""
        return sum(one.told for one in every_field((self,)))


@dataclass
class Alternatives:
    """A table that is one of several kinds, or may be left out."""

    path: str
    name: str
    label: str
    stated: str
    """The kind that the file or the default has."""
    chosen: str
    variants: tuple[Section, ...]
    told: bool
    optional: bool
    help: str = ""
    own_faults: list[str] = field(default_factory=list)

    form = "alternatives"

    @property
    def id(self) -> str:
        """For labels."""
        return element_id(self.name)

    @property
    def is_changed(self) -> bool:
        """Another kind is chosen, or something in it is changed."""
        return self.chosen != self.stated or any(one.is_changed for one in self.variants if one.tag == self.chosen)

    @property
    def faults(self) -> list[str]:
        """Its own, and those of what is chosen."""
        return [*self.own_faults, *(fault for one in self.variants if one.tag == self.chosen for fault in one.faults)]

    @property
    def options(self) -> list[str]:
        """What may be chosen. What a file says cannot be unsaid by a change."""
        kinds = [one.tag for one in self.variants]
        return [NONE, *kinds] if self.optional and not (self.told and self.stated != NONE) else kinds


@dataclass
class Table:
    """Entries under names of the author's: expectations, a sweep."""

    path: str
    title: str
    parts: tuple[Field, ...]
    told: bool
    help: str = ""
    key: str = ""
    """What is typed for one more entry."""
    value: str = ""
    example: tuple[str, str] = ("", "")
    own_faults: list[str] = field(default_factory=list)

    form = "table"

    @property
    def name(self) -> str:
        """Of the inputs for one more entry, behind `add-key:` and `add-value:`."""
        return self.path

    @property
    def is_changed(self) -> bool:
        """An entry is, or there is one more."""
        return bool(self.key) or any(part.is_changed for part in self.parts)

    @property
    def faults(self) -> list[str]:
        """Of all entries."""
        return [*self.own_faults, *(fault for part in self.parts for fault in part.faults)]

    @property
    def told_count(self) -> int:
        """How many entries there are."""
        return len(self.parts)


Part: TypeAlias = Field | Section | Alternatives | Table


def bound_text(end: float) -> str:
    """A bound for people: whole numbers in full."""
    return f"{int(end):,}" if end == int(end) else f"{end:g}"


def element_id(name: str) -> str:
    """An id for an input's name: letters, digits and dashes; others as their numbers."""
    return "f-" + "".join(letter if letter.isalnum() and letter.isascii() else f"-{ord(letter):x}-" for letter in name)


def shown_text(value: Any, control: str) -> str:
    """A value as its input shows it."""
    if value is None or value is MISSING:
        return ""
    if isinstance(value, str) and control != "toml":
        return value
    return value_text(value)


def every_field(parts: Sequence[Part]) -> Iterator[Field]:
    """All fields, of the chosen kinds alone."""
    for part in parts:
        if isinstance(part, Field):
            yield part
        elif isinstance(part, Alternatives):
            yield from every_field([one for one in part.variants if one.tag == part.chosen])
        else:
            yield from every_field(part.parts)


def every_input(parts: Sequence[Part]) -> Iterator[Field | Alternatives | Table]:
    """All parts that have an input of their own, of the chosen kinds alone."""
    for part in parts:
        if not isinstance(part, Section):
            yield part
        if isinstance(part, Alternatives):
            yield from every_input([one for one in part.variants if one.tag == part.chosen])
        elif not isinstance(part, Field):
            yield from every_input(part.parts)
