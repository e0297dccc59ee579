"""The launch form of one experiment as a tree: what its file may say, what it says, and how a page asks for it.

Made from the schema that editors get (`looplane schema`), so a field that a system has is a field here: label, help,
unit, bounds and choices are nowhere written twice. Knows no request and no template; what was typed comes as texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from testbed.experiment.schema_export import experiment_schema
from webui.catalogue.toml_text import path_text, value_text

Schema: TypeAlias = dict[str, Any]
MISSING = object()
NONE = "none"
"""The choice of an optional part that leaves it out."""

UNITS: tuple[tuple[str, str], ...] = (
    ("_tokens_per_s", "tokens/s"), ("_bits_per_s", "bit/s"), ("_per_s", "per s"), ("_gbit_s", "Gbit/s"),
    ("_per_node", "per node"), ("_bytes", "bytes"), ("_mib", "MiB"), ("_tokens", "tokens"), ("_us", "µs"),
    ("_ms", "ms"), ("_s", "s"),
)  # fmt: skip
"""What the end of a field's name says of its unit."""


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


@cache
def format_schema() -> Schema:
    """The schema of experiment files."""
    return experiment_schema()


def resolved(schema: Schema) -> Schema:
    """What a reference refers to, with the description of the place where it stands."""
    if "$ref" not in schema:
        return schema
    found = format_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return {**found, **{key: one for key, one in schema.items() if key != "$ref"}}


def members(schema: Schema) -> tuple[list[Schema], bool]:
    """What a value may be, without `null`, and whether it may be that."""
    schema = resolved(schema)
    if "anyOf" not in schema:
        return ([], True) if schema.get("type") == "null" else ([schema], False)
    found: list[Schema] = []
    optional = False
    for one in schema["anyOf"]:
        inner, may_be_none = members(one)
        found += inner
        optional = optional or may_be_none
    return found, optional


def is_table(schema: Schema) -> bool:
    """Whether it is a struct of the format."""
    return "properties" in schema


def tag_of(schema: Schema) -> str:
    """The kind that a table says it is; `set` for one that needs to say none."""
    kind = schema["properties"].get("kind", {})
    if "const" in kind:
        return str(kind["const"])
    values = kind.get("enum", [])
    return str(values[0]) if len(values) == 1 else "set"


@dataclass(frozen=True)
class Source:
    """Where a form's values come from."""

    posted: Mapping[str, str] | None
    """What was typed; None for a page that is opened."""

    def text(self, name: str, otherwise: str) -> str:
        """What the input `name` shows."""
        if self.posted is None:
            return otherwise
        return self.posted.get(name, otherwise).replace("\r\n", "\n")


def label_of(key: str) -> tuple[str, str]:
    """A field's name as words, and its unit."""
    unit = next((words for end, words in UNITS if key.endswith(end) and len(key) > len(end)), "")
    stem = next((key[: -len(end)] for end, words in UNITS if words == unit and key.endswith(end)), key)
    words = re.sub(r"[_-]+", " ", stem)
    return words[:1].upper() + words[1:], unit


def make_part(
    key: str, schema: Schema, path: str, name: str, values: tuple[Any, Any, Any], source: Source
) -> Field | Section | Alternatives:
    """The part for one key. `values`: what the file says, what is to be shown, the default (or MISSING)."""
    found, optional = members(schema)
    help_text = str(schema.get("description") or resolved(schema).get("description", ""))
    tables = [one for one in found if is_table(one)]
    if tables and len(tables) == len(found):
        if len(tables) == 1 and not optional:
            label, _ = label_of(key)
            return make_section(tables[0], path, name, label, values, source, help_text)
        return _alternatives(key, tables, (path, name), values, source, (help_text, optional))
    own = schema.get("default", MISSING)
    return _field(key, found, path, name, (*values, own), source, help_text)


def make_section(
    schema: Schema, path: str, name: str, title: str, values: tuple[Any, Any, Any], source: Source, help_text: str = ""
) -> Section:
    """A table with all its keys; the one that says its kind is none of them."""
    told, shown, default = (one if isinstance(one, Mapping) else {} for one in values)
    tag = tag_of(schema)
    parts = [
        make_part(
            key, one, path_text(path, key), f"{name}.{key}",
            (told.get(key, MISSING), shown.get(key, MISSING), default.get(key, one.get("default", MISSING))), source,
        )
        for key, one in schema["properties"].items()
        if key != "kind" or tag == "set"
    ]  # fmt: skip
    return Section(path, title, tuple(parts), values[0] is not MISSING, help_text, tag)


def _alternatives(
    key: str, tables: list[Schema], where: tuple[str, str], values: tuple[Any, Any, Any], source: Source,
    about: tuple[str, bool],
) -> Alternatives:  # fmt: skip
    path, name = where
    told, shown, default = values
    label, _ = label_of(key)
    stated = _kind_in(told if told is not MISSING else default)
    variants = []
    for table in tables:
        tag = tag_of(table)
        # Values of another kind say nothing about this one.
        own = tuple(one if _kind_in(one) == tag else MISSING for one in values)
        variants.append(make_section(table, path, f"{name}[{tag}]", tag, (own[0], own[1], own[2]), source,
                                     str(table.get("description", ""))))  # fmt: skip
    chosen = source.text(f"kind:{name}", _kind_in(shown if shown is not MISSING else default))
    return Alternatives(
        path, f"kind:{name}", label, stated, chosen, tuple(variants), told is not MISSING, about[1], about[0]
    )


def _kind_in(value: Any) -> str:
    if not isinstance(value, Mapping):
        return NONE
    return str(value.get("kind", "set"))


def _field(
    key: str,
    found: list[Schema],
    path: str,
    name: str,
    values: tuple[Any, Any, Any, Any],
    source: Source,
    help_text: str,
) -> Field:
    label, unit = label_of(key)
    kind = found[0] if len(found) == 1 else {}
    types = {one.get("type") for one in found}
    choices: tuple[tuple[str, Any], ...] = ()
    if "enum" in kind or kind.get("type") == "boolean":
        control = "select"
        choices = tuple((shown_text(one, control), one) for one in kind.get("enum", (True, False)))
    elif types <= {"integer", "number"} and found:
        control = "number"
    else:
        control = "text" if types == {"string"} else "toml"
    told, shown, default, own = values
    stated = told if told is not MISSING else None if default is MISSING else default
    otherwise = shown_text(shown if shown is not MISSING else default, control)
    return Field(
        path=path, name=name, label=label, control=control, whole=types == {"integer"}, stated=stated, default=own,
        value=source.text(name, otherwise), told=told is not MISSING, help=help_text, unit=unit,
        low=kind.get("minimum", kind.get("exclusiveMinimum")), high=kind.get("maximum", kind.get("exclusiveMaximum")),
        choices=choices,
    )  # fmt: skip
