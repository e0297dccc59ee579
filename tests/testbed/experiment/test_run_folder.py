from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from testbed.experiment.run_folder import (
    RUN_ID,
    RunFolder,
    RunFolderError,
    RunStatus,
    label_of,
    new_run_id,
    run_folders,
    write_whole,
)


def test_a_run_id_is_utc_and_ends_in_the_label() -> None:
    moment = datetime(2026, 7, 31, 1, 2, 3, tzinfo=timezone(timedelta(hours=5)))
    run = new_run_id(moment)
    assert run.startswith("20260730-200203-")
    assert RUN_ID.fullmatch(run)
    assert label_of(run) == run[-6:]


@pytest.mark.parametrize("text", ["", "20260730-200203", "20260730-200203-xyz012", "20260730-200203-0a1b2c/.."])
def test_what_is_no_run_id_has_no_label(text: str) -> None:
    with pytest.raises(ValueError, match="no run id"):
        label_of(text)


def test_a_folder_is_made_once_and_never_again(tmp_path: Path) -> None:
    """Fault A17: a stale folder must not be used silently."""
    folder = RunFolder.create(tmp_path / "runs", "a")
    (folder.path / "keep").write_text("x")
    with pytest.raises(RunFolderError, match="never used twice"):
        RunFolder.create(tmp_path / "runs", "a")
    assert (folder.path / "keep").read_text() == "x"


def test_only_one_of_many_makes_it(tmp_path: Path) -> None:
    made: list[RunFolder] = []

    def make() -> None:
        try:
            made.append(RunFolder.create(tmp_path, "a"))
        except RunFolderError:
            return

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_parent_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"(?i)exists|not a directory"):
        RunFolder.create(tmp_path / "file", "a")


def test_opening_tells_a_run_from_any_other_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such run folder"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(RunFolderError, match="is no run folder"):
        RunFolder.open(tmp_path)
    folder = RunFolder.create(tmp_path, "a")
    folder.write_json(folder.spec_json, {})
    assert RunFolder.open(tmp_path / "a").path == folder.path


def test_one_trial_is_the_folder_itself_and_many_come_in_their_order(tmp_path: Path) -> None:
    one = RunFolder.create(tmp_path, "one")
    assert [trial.path for trial in one.trials()] == [one.path]
    many = RunFolder.create(tmp_path, "many")
    many.create_trials(["b-x=2", "a-x=2", "a-x=10"])
    assert [trial.name for trial in many.trials()] == ["b-x=2", "a-x=2", "a-x=10"]
    assert all(trial.events.is_dir() for trial in many.trials())


def test_state_and_outcome_are_kept_apart(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    assert folder.status() is None
    folder.set_status("running")
    assert folder.status() == RunStatus("running", None)
    folder.set_status("finished", "failed", "1 of 3 expectations did not hold")
    assert folder.status() == RunStatus("finished", "failed", "1 of 3 expectations did not hold")
    told = msgspec.json.decode((folder.control / "outcome.json").read_bytes())
    assert told == {"state": "finished", "outcome": "failed", "detail": "1 of 3 expectations did not hold"}


@pytest.mark.parametrize("damage", [b"", b"{", b'{"state": "asleep"}'])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    folder = RunFolder.create(tmp_path, "a")
    (folder.control / "outcome.json").write_bytes(damage)
    with pytest.raises(RunFolderError, match=r"outcome\.json"):
        folder.status()
    folder.plan_file.write_bytes(damage)
    with pytest.raises(RunFolderError, match=r"plan\.json"):
        folder.plan()
    with pytest.raises(RunFolderError, match=r"none\.json"):
        folder.read_json(folder.path / "none.json")


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_whole(path, b"0" * 100_000)
    stop = threading.Event()
    sizes: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            sizes.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for length in range(100_001, 100_200):
        write_whole(path, b"1" * length)
    stop.set()
    reader.join()
    assert min(sizes) >= 100_000
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_runs_are_listed_newest_first_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("20260101-000000-aaaaaa", "20260301-000000-bbbbbb", "notes"):
        (tmp_path / name).mkdir()
    assert [run.name for run in run_folders(tmp_path)] == ["20260301-000000-bbbbbb", "20260101-000000-aaaaaa"]
    assert run_folders(tmp_path / "none") == []


def test_a_folder_knows_its_size_and_can_go(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    (folder.events / "x.jsonl").write_bytes(b"12345")
    assert folder.size_bytes() == 5
    folder.delete()
    assert not folder.path.exists()
