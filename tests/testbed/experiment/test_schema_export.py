from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.schema_export import experiment_schema, field_docs
from testbed.experiment.spec import Spec

EXPERIMENTS = sorted((Path(__file__).resolve().parents[3] / "fixtures" / "experiments").rglob("*.toml"))


def places(schema: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every table of properties in a schema."""
    found = []
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            found.append((path, schema))
        for key, value in schema.items():
            found += places(value, f"{path}/{key}")
    return found


def keys_of(told: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> None:
    """Walks a file along the schema: every key must be known where it stands."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema and isinstance(told, dict):
        members = [root["$defs"][one["$ref"].rpartition("/")[2]] for one in schema["anyOf"] if "$ref" in one]
        kinds = schema.get("discriminator", {}).get("mapping")
        tagged = [one for one in members if one["properties"].get("kind", {}).get("const") == told.get("kind")]
        if kinds:
            schema = root["$defs"][kinds[told["kind"]].rpartition("/")[2]]
        elif told.get("kind") and tagged:
            schema = tagged[0]
        else:
            return
    if not isinstance(told, dict):
        return
    for key, value in told.items():
        if key in schema.get("properties", {}):
            keys_of(value, schema["properties"][key], root, f"{path}.{key}")
        else:
            assert schema.get("additionalProperties"), f"{path}.{key}"
            keys_of(value, schema["additionalProperties"], root, f"{path}.{key}")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_the_schema_knows_every_key_of_the_shipped_experiments(path: Path) -> None:
    schema = experiment_schema()
    keys_of(tomllib.loads(path.read_text()), schema, schema)


def test_every_field_has_a_description() -> None:
    schema = experiment_schema()
    silent = [
        f"{path}.{name}"
        for path, place in places(schema)
        for name, field in place["properties"].items()
        if "description" not in field
        # The lane table is OpenSM's own; its names are explained there. A tag is explained by its table.
        and "LaneTable" not in path and name != "kind"
    ]
    assert not silent


def test_unknown_keys_are_refused_everywhere_but_where_names_are_free() -> None:
    for path, place in places(experiment_schema()):
        assert place["additionalProperties"] is False, path


def test_a_system_has_its_kind_beside_its_parameters() -> None:
    schema = experiment_schema()
    for kind, row in SYSTEMS.items():
        part = schema["$defs"][row.parameters.__name__]
        assert part["properties"]["kind"]["const"] == kind
        assert "kind" in part["required"]


def test_the_schema_is_plain_json() -> None:
    schema = experiment_schema()
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


def test_field_docs_are_one_line_each() -> None:
    docs = field_docs(Spec)
    assert set(docs) == set(Spec.__struct_fields__)
    assert all("\n" not in words for words in docs.values())
    assert field_docs(int) == {}
