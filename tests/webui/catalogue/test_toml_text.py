from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui.catalogue.toml_text import document, value_text

EXPERIMENTS = sorted((Path(__file__).resolve().parents[3] / "fixtures" / "experiments").rglob("*.toml"))
KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    assert tomllib.loads(f"value = {value_text(value)}") == {"value": value}


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.text(st.characters(codec="utf-8"), max_size=30))
def test_tables_are_read_back_as_they_were(tables: dict[str, Any], head: str) -> None:
    assert tomllib.loads(document(tables, head=head)) == tables


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_the_same_experiment(path: Path) -> None:
    told = tomllib.loads(path.read_text())
    assert tomllib.loads(document(told)) == told
