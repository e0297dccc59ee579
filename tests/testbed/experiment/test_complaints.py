from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.complaints import Complaint, SpecError, complaints, joined, shown


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="shape", tag="round"):
    radius: Annotated[float, msgspec.Meta(gt=0, lt=100)]


class Square(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="shape", tag="square"):
    side: Annotated[int, msgspec.Meta(ge=1)] = 1


class Box(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=5)]
    shape: Round | Square = Square()
    colour: Literal["red", "blue", 3] = "red"
    sizes: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=9)]], msgspec.Meta(max_length=3)] = []
    pair: tuple[int, float] = (0, 0.0)
    limit: int | None = None
    either: float | str | None = None
    parts: dict[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], Square] = {}
    full: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < len(self.sizes):
            raise ValueError(f"limit {self.limit} is below the number of sizes")
        if self.full and not self.sizes:
            raise ValueError("something must be in a full box")


def said(told: Any) -> list[str]:
    return [str(fault) for fault in complaints(Box, told)]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ([], ": []: a table"),
        ({}, "name: missing: text of 1 to 5 characters"),
        ({"name": ""}, 'name: "": text of 1 to 5 characters'),
        ({"name": "x", "nmae": 1}, "nmae: 1: no such key; did you mean name? allowed: name, shape, colour, sizes"),
        ({"name": "x", "shape": {}}, "shape.shape: missing: allowed: round, square"),
        ({"name": "x", "shape": 1}, "shape: 1: a table with shape = one of round, square"),
        ({"name": "x", "shape": {"shape": "rund"}}, 'shape.shape: "rund": did you mean round? allowed: round, square'),
        ({"name": "x", "shape": {"shape": "round", "radius": 0}}, "shape.radius: 0: a number above 0, below 100"),
        ({"name": "x", "shape": {"shape": "round", "radius": True}}, "shape.radius: true: a number above 0"),
        ({"name": "x", "shape": {"shape": "square", "side": 1.0}}, "shape.side: 1.0: a whole number at least 1"),
        ({"name": "x", "colour": "green"}, 'colour: "green": one of 3, "blue", "red"'),
        ({"name": "x", "colour": 3.0}, "colour: 3.0: one of"),
        ({"name": "x", "sizes": [1, 10]}, "sizes[1]: 10: a whole number from 0 to 9"),
        ({"name": "x", "sizes": [1, 1, 1, 1]}, "sizes: 4 entries: at most 3 entries"),
        ({"name": "x", "sizes": "abc"}, 'sizes: "abc": a list, each a whole number from 0 to 9'),
        ({"name": "x", "pair": [1]}, "pair: [1]: [a whole number, a number]"),
        ({"name": "x", "pair": [1, "y"]}, 'pair[1]: "y": a number'),
        ({"name": "x", "limit": "y"}, 'limit: "y": a whole number'),
        ({"name": "x", "limit": 2**80}, "limit: a number of more than 63 bits: a whole number"),
        ({"name": "x", "either": []}, "either: []: a number or text"),
        ({"name": "x", "parts": {"A B": {}}}, 'parts."A B": the name "A B": text that matches ^[a-z]+$'),
        ({"name": "x", "parts": {"a": 1}}, "parts.a: 1: a table"),
        ({"name": "x", "full": 1}, "full: 1: true or false"),
        ({"name": "x", "sizes": [1], "limit": 0}, "limit: 0: limit 0 is below the number of sizes"),
        ({"name": "x", "full": True}, "the whole file: {name = \"x\", full = true}: something must be in a full box"),
    ],
)
def test_each_fault_is_one_line(told: Any, line: str) -> None:
    lines = said(told)
    assert len(lines) == 1
    assert lines[0].startswith(line)


def test_all_faults_are_found_at_once() -> None:
    assert len(said({"nmae": 1, "colour": 4, "sizes": [-1, 2, 10], "shape": {"shape": "round"}})) == 6


values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 12), st.floats(), st.sampled_from(["red", "round", "x"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["shape", "radius", "side", "a", "name"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(Box.__struct_fields__), values))
def test_what_is_not_complained_about_is_taken_and_the_other_way_round(told: dict[str, Any]) -> None:
    """The walk and msgspec agree; the walk alone also refuses what JSON cannot say (nan, infinity)."""
    try:
        msgspec.convert(told, Box)
        taken = True
    except msgspec.ValidationError:
        taken = False
    faults = complaints(Box, told)
    if faults and taken:
        assert any(fault.value in ("nan", "inf", "-inf") for fault in faults), faults
    else:
        assert taken == (not faults), faults


@given(values)
def test_any_value_is_shown_on_one_short_line(value: Any) -> None:
    text = shown(value)
    assert "\n" not in text
    assert len(text) <= 60


def test_paths_quote_what_is_no_bare_word() -> None:
    assert joined("", "a") == "a"
    assert joined("a", "b-c_1") == "a.b-c_1"
    assert joined("a", "b.c") == 'a."b.c"'
    assert joined("a", "x\n") == 'a."x\\n"'


def test_an_error_has_one_line_a_fault() -> None:
    fault = SpecError("f.toml", [Complaint("a", "1", "2"), Complaint("b", "3", "4")], ["f.toml", "--set"])
    assert str(fault) == "f.toml: a: 1: 2\n--set: b: 3: 4"
