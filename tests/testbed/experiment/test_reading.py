from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import (
    LARGEST_FILE,
    at_point,
    read_spec,
    spec_from_bytes,
    spec_from_tables,
    split_path,
    tables_of,
)
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import points
from testbed.workload.arrivals import Constant, Poisson
from testbed.workload.lengths import Fixed

TOP = Path(__file__).resolve().parents[3]
BAD = sorted((TOP / "fixtures" / "bad_specs").glob("*.toml"))
EXPERIMENTS = sorted((TOP / "fixtures" / "experiments").rglob("*.toml"))
SMALLEST = b'name = "x"\ntitle = "X"\n[systems.blink]\nkind = "blink"\n'


def faults(data: bytes, overrides: list[str] | None = None) -> list[str]:
    with pytest.raises(SpecError) as raised:
        spec_from_bytes(data, "x.toml", overrides or [])
    return raised.value.lines()


def test_the_corpus_is_there() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_spec_gives_one_line_with_file_path_value_and_what_is_allowed(path: Path) -> None:
    first = path.read_bytes().split(b"\n", 1)[0].decode()
    expected = first.removeprefix("# expect: ")
    assert expected != first
    with pytest.raises(SpecError) as raised:
        read_spec(path)
    assert raised.value.lines() == [f"{path}: {expected}"]
    assert len(expected.split(": ")) >= 3


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_shipped_experiment_reads_and_survives_its_tables(path: Path) -> None:
    spec = read_spec(path)
    assert spec_from_tables(tables_of(spec), "spec.json") == spec


UNUSED = b"""name = "x"
title = "X"
[systems.a]
kind = "host-driven"
[neighbours.zip]
kind = "pbzip2"
"""


def test_a_neighbour_that_some_point_of_a_sweep_has_is_used() -> None:
    swept = spec_from_bytes(UNUSED + b'[sweep]\n"systems.a.neighbours" = [[], ["zip"]]\n', "x.toml")
    assert [point[0][1] for point in points(swept.sweep)] == [[], ["zip"]]
    assert faults(UNUSED + b'[sweep]\n"neighbours.zip.threads" = [4, 8]\n') == [
        "x.toml: neighbours.zip: beside no system: a name in systems.NAME.neighbours, NAME one of a"
    ]
    alone = UNUSED.replace(b'"host-driven"', b'"host-driven"\nneighbours = ["zip"]')
    assert faults(alone, ["systems.a.neighbours=[]"])[0].startswith("x.toml: neighbours.zip: beside no system")
    assert spec_from_bytes(alone, "x.toml", ["neighbours.zip.threads=0"]).systems["a"].neighbours == ["zip"]


def test_the_tables_of_an_older_run_with_an_unused_neighbour_are_read() -> None:
    assert spec_from_tables(tomllib.loads(UNUSED.decode()), "spec.json").neighbours


def test_defaults_are_filled_in() -> None:
    spec = spec_from_bytes(SMALLEST, "x.toml")
    assert spec.systems["blink"].parameters["slots"] == 4096
    assert spec.workload.arrivals == Poisson(1.0)


def test_several_faults_are_told_together() -> None:
    told = faults(b'name = "X"\ntitel = "x"\nseed = -1\n[systems.blink]\nkind = "blink"\nslots = 0\nmax_batsch = 1\n')
    assert [line.split(": ")[1] for line in told] == ["name", "seed", "systems.blink.max_batsch", "titel", "title"]


def test_faults_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(SpecError, match=reason) as raised:
            read_spec(path)
        assert len(raised.value.lines()) == 1
    big = tmp_path / "big.toml"
    big.write_bytes(SMALLEST + b"#" * LARGEST_FILE)
    with pytest.raises(SpecError, match="too long"):
        read_spec(big)


def test_deep_nesting_is_a_fault_and_no_crash() -> None:
    assert "nested too deep" in faults(b"a = " + b"[" * 5000 + b"]" * 5000)[0]


@given(st.binary(max_size=80))
def test_any_bytes_read_or_are_refused_in_whole_lines(data: bytes) -> None:
    with pytest.raises(SpecError) as raised:
        spec_from_bytes(data, "x.toml")
    assert all(line.startswith("x.toml: ") and "\n" not in line for line in raised.value.lines())


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=5,
)
PATHS = [
    "name", "title", "systems", "question", "seed", "dilation", "nodes", "workload", "workload.requests",
    "workload.arrivals", "workload.arrivals.kind", "workload.lengths", "network", "network.compute.lanes", "captures",
    "expect", "sweep", "repeats", "systems.blink", "systems.blink.kind", "systems.blink.slots", "systems.blink.model",
]  # fmt: skip


@given(st.sampled_from(PATHS), VALUES)
def test_any_value_anywhere_reads_or_is_refused_in_whole_lines(path: str, value: Any) -> None:
    tables: dict[str, Any] = {"name": "x", "title": "X", "systems": {"blink": {"kind": "blink"}}}
    *outer, last = path.split(".")
    place = tables
    for key in outer:
        place = place.setdefault(key, {})
    place[last] = value
    spec, lines = attempt(tables)
    assert (spec is None) == bool(lines)
    assert all("\n" not in line for line in lines)
    if spec is not None:
        assert spec_from_tables(tables_of(spec), "again") == spec


def attempt(tables: dict[str, Any]) -> tuple[Spec | None, list[str]]:
    try:
        return spec_from_tables(tables, "x.toml"), []
    except SpecError as fault:
        return None, fault.lines()


# --- overrides -----------------------------------------------------------------------------------------------------


def test_an_override_is_laid_over_the_file() -> None:
    overrides = ["workload.requests=3", 'workload.arrivals={kind = "constant", rate_per_s = 4}', "nodes=namespace"]
    spec = spec_from_bytes(SMALLEST, "x.toml", overrides)
    assert (spec.workload.requests, spec.workload.arrivals, spec.nodes) == (3, Constant(4.0), "namespace")


def test_an_override_replaces_a_whole_table() -> None:
    lengths = b'kind = "uniform"\nprompt_low = 1\nprompt_high = 2\noutput_low = 1\noutput_high = 2\n'
    data = SMALLEST + b"[workload.lengths]\n" + lengths
    spec = spec_from_bytes(data, "x.toml", ['workload.lengths={kind="fixed",prompt=2,output=3}'])
    assert spec.workload.lengths == Fixed(2, 3)


def test_a_quoted_key_may_hold_an_equals_sign_and_dots() -> None:
    with pytest.raises(SpecError, match=r'--set: expect."a=b.c": \{at_most = 3\}: unknown metric'):
        spec_from_bytes(SMALLEST, "x.toml", ['expect."a=b.c".at_most=3'])


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("workload.requests=many", '--set: workload.requests: "many": a whole number from 0 to 1000000'),
        ("workload.requsts=4", "--set: workload.requsts: 4: no such key; did you mean requests?"),
        ("seed=", '--set: seed: "": a whole number'),
        ("nonsense", '--set: the setting: "nonsense": key.path=value'),
        ("=4", '--set: the setting: "=4": key.path=value'),
        ("a b=4", '--set: the setting: "a b=4": key.path=value'),
        ("seed=1\nrepeats=2", '--set: seed: "1\\nrepeats=2": a whole number'),
        ("systems.blink.slots=16", "x.toml: systems.blink.max_batch: 80: max_batch 80 is more than the ring's 16"),
    ],
)
def test_a_wrong_override_is_told_as_such(override: str, line: str) -> None:
    told = faults(SMALLEST, [override])
    assert len(told) == 1
    assert told[0].startswith(line)


# --- expectations and sweeps ---------------------------------------------------------------------------------------


def test_expectations_may_be_quoted_or_dotted() -> None:
    quoted = b'[expect]\n"systems.blink.ttft_ms.p99" = { at_most = 9 }\n'
    dotted = b"[expect.systems.blink]\nttft_ms.p99 = { at_most = 9 }\n"
    assert spec_from_bytes(SMALLEST + quoted, "x").expect == spec_from_bytes(SMALLEST + dotted, "x").expect


def test_a_ratio_between_systems_is_an_expectation() -> None:
    data = SMALLEST + b'[systems.other]\nkind = "blink"\n[expect]\n'
    data += b'"ratio(systems.blink.tpot_ms.p50, systems.other.tpot_ms.p50)" = { between = [0.9, 1.1] }\n'
    assert spec_from_bytes(data, "x.toml").expect


def test_a_point_is_the_experiment_with_its_values_in_it() -> None:
    sweep = b'[sweep]\n"workload.requests" = [3, 5]\n"systems.blink.max_batch" = [4]\n'
    spec = spec_from_bytes(SMALLEST + sweep, "x.toml")
    there = at_point(spec, (("workload.requests", 5), ("systems.blink.max_batch", 4)))
    assert there.workload.requests == 5
    assert there.systems["blink"].parameters["max_batch"] == 4
    assert spec.workload.requests == 64


def test_a_sweep_may_exchange_whole_tables() -> None:
    sweep = b'[sweep]\n"workload.arrivals" = [{kind = "constant", rate_per_s = 2}, {kind = "burst", size = 3}]\n'
    spec = spec_from_bytes(SMALLEST + sweep, "x.toml")
    there = at_point(spec, [("workload.arrivals", {"kind": "constant", "rate_per_s": 2})])
    assert there.workload.arrivals == Constant(2)


def test_a_point_of_a_large_sweep_does_not_check_all_the_others_again() -> None:
    """Ten thousand checks of a whole experiment would take minutes; a run of a thousand trials took an hour."""
    sweep = b'[sweep]\n"workload.requests" = [%s]\n' % b", ".join(b"%d" % number for number in range(1, 101))
    spec = spec_from_bytes(SMALLEST + sweep, "x.toml")
    found = [at_point(spec, [("workload.requests", number)]).workload.requests for number in range(1, 101)]
    assert found == list(range(1, 101))
    with pytest.raises(SpecError, match="requests"):
        at_point(spec, [("workload.requests", -1)])


@pytest.mark.parametrize("path", ["", "a.", "a b", "a = 1\nb", "[a]", "a.'b"])
def test_what_is_no_path_is_told_from_one(path: str) -> None:
    with pytest.raises(ValueError, match="no path of keys"):
        split_path(path)
    assert split_path('a."b.c".d') == ["a", "b.c", "d"]
