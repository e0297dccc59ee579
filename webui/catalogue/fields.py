"""The launch form's parts for an experiment: what its file may say, what it says, and how a page asks for it.

Made from the schema that editors get (`looplane schema`), so a field that a system has is a field here: label, help,
unit, bounds and choices are nowhere written twice. Knows no request and no template; what was typed comes as texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from testbed.experiment.schema_export import experiment_schema
from webui.catalogue.parts import MISSING, NONE, Alternatives, Field, Section, shown_text
from webui.catalogue.toml_text import path_text

Schema: TypeAlias = dict[str, Any]

UNITS: tuple[tuple[str, str], ...] = (
    ("_tokens_per_s", "tokens/s"), ("_bits_per_s", "bit/s"), ("_per_s", "per s"), ("_gbit_s", "Gbit/s"),
    ("_per_node", "per node"), ("_bytes", "bytes"), ("_mib", "MiB"), ("_tokens", "tokens"), ("_us", "µs"),
    ("_ms", "ms"), ("_s", "s"),
)  # fmt: skip
"""What the end of a field's name says of its unit."""


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
