"""What runnerd takes for an emulation under way: records of living processes, and runs that are conducted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from testbed.command.locks import held
from topologies.runnerd_benches import Others, living_benches, start_time


def put_record(records: Path, label: str, pid: int, start: int | None, folder: Path) -> Path:
    (records / label).mkdir()
    path = records / label / "run.json"
    path.write_text(json.dumps({"owner": {"pid": pid, "start": start}, "folder": str(folder)}))
    return path


def test_a_record_counts_while_its_very_process_lives(tmp_path: Path) -> None:
    started = start_time(os.getpid())
    assert started is not None
    put_record(tmp_path, "aaaaaa", os.getpid(), started, tmp_path / "run" / "trials" / "one")
    put_record(tmp_path, "bbbbbb", os.getpid(), started + 1, tmp_path / "other")  # a pid that is used again
    (tmp_path / "cccccc").mkdir()
    (tmp_path / "cccccc" / "run.json").write_text('{"owner": [')
    [bench] = living_benches(tmp_path)
    assert bench.is_of(tmp_path / "run")
    assert not bench.is_of(tmp_path / "other")


@pytest.mark.parametrize("place", [".", "trials/one"])
def test_a_run_that_was_seen_counts_between_its_trials_until_its_conductor_ends(tmp_path: Path, place: str) -> None:
    records, run = tmp_path / "records", tmp_path / "run"
    records.mkdir()
    (run / "control").mkdir(parents=True)
    others = Others(records)
    with held(run / "control" / "conductor.lock"):
        assert not others.are_live()  # nobody emulates: it may be a simulation
        record = put_record(records, "aaaaaa", os.getpid(), start_time(os.getpid()), run / place)
        assert others.are_live()
        record.unlink()
        assert others.are_live()
    assert not others.are_live()
