"""What a probe makes of its readings, and that it measures at all; how much depends on the machine."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from emulators.contention_probe import Readings, contention, quantiles
from testbed.serving.host_work import Contention

MS = 1_000_000


def test_neighbours_are_what_the_loop_has_not_alone() -> None:
    alone = Readings(cpu=110 * MS, alone=100 * MS, stalls=[], wakes=[60_000] * 9)
    beside = Readings(cpu=165 * MS, alone=100 * MS, stalls=[4 * MS] * 33, wakes=[60_000, 60_000, 1_060_000])
    found = contention(beside, alone)
    assert (found["slowdown"], found["stalls_per_ms"]) == (1.5, 0.2)
    assert set(quantiles(beside.stalls)) == {4.0}
    assert found["wake_ms"][-1] == 1.0  # type: ignore[index]
    assert found["wake_ms"][0] == 0.0  # type: ignore[index]


def test_a_loop_that_nobody_disturbs_has_neutral_contention() -> None:
    alone = Readings(cpu=100 * MS, alone=100 * MS, stalls=[], wakes=[50_000] * 5)
    found = {key: value for key, value in contention(alone, alone).items() if key != "steps"}
    assert msgspec.convert(found, Contention) == Contention()


@pytest.mark.parametrize(("values", "ends"), [([5 * MS], (5.0, 5.0)), ([1 * MS, 9 * MS, 3 * MS], (1.0, 9.0))])
def test_quantiles_go_from_the_smallest_to_the_largest(values: list[int], ends: tuple[float, float]) -> None:
    found = quantiles(values)
    assert (found[0], found[-1]) == ends
    assert found == sorted(found)


def test_a_measurement_is_a_line_of_json_for_each_line_of_input() -> None:
    words = [sys.executable, "-m", "emulators.contention_probe"]
    words += ["--work-us", "500", "--pause-us", "500", "--seconds", "0.2"]
    done = subprocess.run(words, input="\n\n", capture_output=True, text=True, timeout=60, check=True)
    ready, *rows = done.stdout.splitlines()
    assert ready == "ready"
    assert len(rows) == 2
    for row in rows:
        found = json.loads(row)
        assert found.pop("steps") > 10
        assert msgspec.convert(found, Contention, strict=False).slowdown >= 1
