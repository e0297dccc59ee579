"""`looplane bench`: its table, and the form of what it prints. Speed itself is not judged here."""

from __future__ import annotations

import json

import pytest

from testbed.command.__main__ import main
from testbed.command.bench import BENCHMARKS, spread
from testbed.command.exit_codes import ExitCode


def test_each_row_says_what_it_measures_and_in_what_unit() -> None:
    for name, row in BENCHMARKS.items():
        assert row.summary, name
        assert row.unit, name
        assert row.root is name.startswith(("rdma_", "lane_", "memory_", "storage_")), name


def test_json_has_median_p99_count_and_unit_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json", "ring_scan_4096", "slot_cas"]) == ExitCode.PASSED
    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == ["ring_scan_4096", "slot_cas"]
    for row in rows.values():
        assert set(row) == {"p50", "p99", "min", "max", "n", "unit"}
        assert row["unit"] == "us"
        assert row["n"] > 1
        assert 0 < row["min"] <= row["p50"] <= row["p99"] <= row["max"]


def test_an_unknown_row_is_one_line_that_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ring_scan"]) == ExitCode.BAD_INPUT
    assert "ring_scan: unknown; allowed: ring_scan_4096, slot_cas" in capsys.readouterr().err


def test_spread_of_figures() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": 2.98, "min": 1.0, "max": 3.0, "n": 3}
