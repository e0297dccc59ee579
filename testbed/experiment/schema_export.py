"""The JSON schema of an experiment: for editors (TOML with completion and hints) and for the console's form.

Made from the structs of `testbed.experiment.spec` and the parameters of every row of `SYSTEMS`; a field's docstring
is its description. Nothing is written twice, so the schema cannot drift from what `reading` takes: a test holds the
two against each other. Docstrings under fields are no part of a class at run time, so the source is looked at.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.metric_paths import ALLOWED, RUN_METRICS
from testbed.experiment.spec import Bound, Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/"
_OF_THE_KIND = ("kind", "parameters")
"""Fields of a SystemSpec that a file spells otherwise."""


def experiment_schema() -> dict[str, Any]:
    """The schema of one experiment file."""
    rows = {row.kind: row.parameters for row in SYSTEMS.values()}
    schemas, parts = msgspec.json.schema_components([Spec, *rows.values()], ref_template=_REFERENCE + "{name}")
    for kind in _structs_of([Spec, *rows.values()]):
        _describe(parts.get(kind.__name__), kind)
    top = parts.pop("Spec")
    about = {key: part for key, part in parts.pop("SystemSpec")["properties"].items() if key not in _OF_THE_KIND}
    for name, parameters in rows.items():
        _tag(parts[parameters.__name__], name, about)
    members = [{"$ref": _REFERENCE + parameters.__name__} for parameters in rows.values()]
    top["properties"]["systems"]["additionalProperties"] = members[0] if len(members) == 1 else {"anyOf": members}
    top["properties"]["expect"] = _expectations(top["properties"]["expect"])
    assert len(schemas) == 1 + len(rows)
    return {"$schema": DIALECT, "title": "Looplane experiment", **_without_titles(top), "$defs": _without_titles(parts)}


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a struct, inherited ones too, on one line; fields without one are left out."""
    found: dict[str, str] = {}
    for above in reversed(kind.__mro__):
        found.update(_own_docs(above))
    return found


def _own_docs(kind: type[Any]) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = " ".join(value.value.split())
    return found


def _structs_of(kinds: list[type[Any]]) -> list[type[Any]]:
    """Every struct that these structs are made of."""
    found: dict[type[Any], None] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in kinds]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls in found:
                continue
            found[kind.cls] = None
            waiting += [field.type for field in kind.fields]
        elif isinstance(kind, msgspec.inspect.UnionType):
            waiting += kind.types
        elif isinstance(kind, msgspec.inspect.DictType):
            waiting.append(kind.value_type)
        elif isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            waiting.append(kind.item_type)
    return list(found)


def _describe(schema: dict[str, Any] | None, kind: type[Any]) -> None:
    if schema is None:
        return
    for name, words in field_docs(kind).items():
        place = schema["properties"].get(name)
        if place is not None:
            place["description"] = words


def _tag(schema: dict[str, Any], kind: str, about: dict[str, Any]) -> None:
    """In a file a system's parameters stand beside its kind, and so does what is about the system."""
    tag = {"kind": {"const": kind, "description": "Which system this is."}}
    schema["properties"] = {**tag, **schema["properties"], **about}
    schema["required"] = ["kind", *schema.get("required", [])]


def _expectations(schema: dict[str, Any]) -> dict[str, Any]:
    """Any path of a metric, quoted, or tables that spell it with dots."""
    bound = {"$ref": _REFERENCE + Bound.__name__}
    nested = {"type": "object", "description": "A metric's path spelt with dots."}
    words = f"{schema['description']} Metrics: systems.NAME. and one of {ALLOWED}; {', '.join(RUN_METRICS)}."
    return {**schema, "additionalProperties": {"anyOf": [bound, nested]}, "description": words}


def _without_titles(schema: Any) -> Any:
    """Without the names of classes, by which msgspec titles every struct; they mean nothing to an author."""
    if isinstance(schema, dict):
        # A field may be called title: its schema is a table, a title is text.
        kept = {key: value for key, value in schema.items() if key != "title" or isinstance(value, dict)}
        return {key: _without_titles(value) for key, value in kept.items()}
    return [_without_titles(value) for value in schema] if isinstance(schema, list) else schema
