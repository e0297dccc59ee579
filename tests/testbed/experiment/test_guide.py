"""What docs/guide/experiments.md and docs/guide/interference.md show is true (house style 27)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.experiment.complaints import SpecError
from testbed.experiment.metric_paths import ALLOWED
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.schema_export import experiment_schema
from testbed.experiment.sweep import places

TOP = Path(__file__).resolve().parents[3]
GUIDE = (TOP / "docs" / "guide" / "experiments.md").read_text()
INTERFERENCE = (TOP / "docs" / "guide" / "interference.md").read_text()
FIRST, SWEEP = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


def test_the_first_experiment_reads_as_it_stands() -> None:
    spec = spec_from_bytes(FIRST.encode(), "mine.toml")
    assert list(spec.systems) == ["large", "small"]
    assert len(spec.expect) == 3


def test_the_sweep_makes_as_many_trials_as_the_guide_says() -> None:
    head, _, rest = FIRST.partition("\n\n")
    repeats, _, sweep = SWEEP.partition("\n")
    spec = spec_from_bytes(f"{head}\n{repeats}\n\n{rest}\n{sweep}".encode(), "mine.toml")
    assert len(places(list(spec.systems), spec.sweep, spec.repeats)) == 3 * 2 * 3 * len(spec.systems)


@pytest.mark.parametrize("change", [('kind = "poisson"', 'kind = "possion"'), ("max_batch = 8\n", "max_bacth = 8\n")])
def test_the_faults_shown_are_the_faults_told(change: tuple[str, str]) -> None:
    with pytest.raises(SpecError) as raised:
        spec_from_bytes(FIRST.replace(*change).encode(), "mine.toml")
    (line,) = raised.value.lines()
    assert any(line.startswith(shown.removesuffix(" …").rstrip(",")) for shown in GUIDE.splitlines() if ": " in shown)


def test_the_overrides_shown_are_taken() -> None:
    overrides = [plain or quoted for quoted, plain in re.findall(r"--set (?:'([^']*)'|(\S+))", GUIDE)]
    assert len(overrides) >= 2
    spec = spec_from_bytes(FIRST.encode(), "mine.toml", overrides)
    assert spec.workload.requests == 8


def test_every_key_of_the_file_is_in_the_table() -> None:
    for key in experiment_schema()["properties"]:
        assert f"`{key}`" in GUIDE or f"`[{key}" in GUIDE or f"`[[{key}" in GUIDE, key


def test_the_metrics_are_all_there() -> None:
    for part in ALLOWED.split(", "):
        assert f"systems.NAME.{part}" in GUIDE, part


def test_the_neighbours_of_the_interference_guide_are_the_same_as_lines_and_as_a_file() -> None:
    small = (TOP / "fixtures" / "experiments" / "blink" / "host-driven-small.toml").read_bytes()
    lines = re.findall(r"--set '((?:neighbours|systems\.server\.neighbours)=.*?)'", INTERFERENCE)
    laid = spec_from_bytes(small, "small.toml", lines)
    (shown,) = re.findall(r"```toml\n(.*?)```", INTERFERENCE, re.DOTALL)
    written = spec_from_bytes(f'name = "x"\ntitle = "X"\n{shown}\n[workload]\nrequests = 1\n'.encode(), "mine.toml")
    assert laid.neighbours == written.neighbours
    assert laid.systems["server"].neighbours == written.systems["server"].neighbours == ["zip"]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"fixtures/\S+\.toml", INTERFERENCE))))
def test_every_file_of_the_interference_guide_is_there(path: str) -> None:
    assert (TOP / path).is_file()
