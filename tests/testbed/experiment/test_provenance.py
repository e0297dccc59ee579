from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec

from testbed.experiment.provenance import (
    collect_provenance,
    finished,
    read_provenance,
    source_revision,
    source_version,
    spec_digest,
    utc_now,
)
from testbed.experiment.reading import spec_from_bytes

SMALLEST = b'name = "x"\ntitle = "X"\n[systems.blink]\nkind = "blink"\n'


def test_the_digest_is_of_the_experiment_as_run() -> None:
    spec = spec_from_bytes(SMALLEST, "x.toml")
    same = spec_from_bytes(b"# A comment.\n" + SMALLEST + b"[workload]\nrequests = 64\n", "y.toml")
    other = spec_from_bytes(SMALLEST, "x.toml", ["seed=2"])
    assert spec_digest(spec) == spec_digest(same) != spec_digest(other)
    assert re.fullmatch("[0-9a-f]{64}", spec_digest(spec))


def test_everything_that_made_a_result_is_in_it_and_it_survives_its_file() -> None:
    spec = spec_from_bytes(SMALLEST, "x.toml", ["dilation=4"])
    told = collect_provenance(
        spec, clock="wall", command=["looplane", "run"], overrides=["dilation=4"], abilities={"docker": True}
    )
    assert (told.experiment, told.clock, told.dilation, told.seed) == ("x", "wall", 4.0, 1)
    assert told.host["abilities"] == {"docker": True}
    assert told.packages["msgspec"]
    assert told.finished is None
    ended = finished(told)
    assert ended.finished is not None
    assert ended.finished >= told.started
    assert read_provenance(msgspec.json.encode(ended)) == ended


def test_times_are_utc() -> None:
    """Fault F15."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", utc_now())


def test_the_revision_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert source_revision(tmp_path) is None

    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "first")
    clean = source_revision(tmp_path)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (tmp_path / "a").write_text("2")
    assert source_revision(tmp_path) == clean + "+"


def test_the_version_is_that_of_the_source(tmp_path: Path) -> None:
    assert source_version(tmp_path) == "unknown"
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    assert source_version(tmp_path) == "1.2.3"
