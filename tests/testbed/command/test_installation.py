from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import (
    Installation,
    prepare_installation,
    service_user,
    source_digest,
    stage_source,
)
from testbed.experiment.provenance import source_revision


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "state", "me", os.getuid(), os.getgid(), False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "testbed" / "__pycache__").mkdir(parents=True)
    (top / "testbed" / "__init__.py").write_text('"""x"""\n')
    (top / "testbed" / "__pycache__" / "old.pyc").write_text("x")
    (top / "manage.py").write_text("print(1)\n")
    (top / "secret.txt").write_text("not staged")
    return top


def test_the_source_is_copied_compiled_and_readable(place: Installation, source: Path) -> None:
    place.state.mkdir()
    assert stage_source(place, source)
    assert (place.app / "testbed" / "__init__.py").read_text() == '"""x"""\n'
    assert not (place.app / "secret.txt").exists()
    assert not (place.app / "testbed" / "__pycache__" / "old.pyc").exists()
    compiled = list((place.app / "testbed" / "__pycache__").glob("*.pyc"))
    assert compiled
    assert str(place.app).encode() in compiled[0].read_bytes()
    for path in [place.app, *place.app.rglob("*")]:
        assert path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH), path
        assert not path.stat().st_mode & stat.S_IWOTH, path


def test_it_is_copied_again_only_when_it_changed(place: Installation, source: Path) -> None:
    place.state.mkdir()
    assert stage_source(place, source)
    assert not stage_source(place, source)
    (source / "manage.py").write_text("print(2)\n")
    assert stage_source(place, source)
    assert (place.app / "manage.py").read_text() == "print(2)\n"
    assert sorted(entry.name for entry in place.state.iterdir()) == ["app"]


def test_a_copy_knows_the_revision_that_it_was_made_from(place: Installation, source: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, "-C", str(source), *words], check=True, capture_output=True)

    place.state.mkdir()
    stage_source(place, source)
    assert source_revision(place.app) is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert not stage_source(place, source)
    assert source_revision(place.app) == source_revision(source) is not None


def test_a_digest_tells_names_apart_from_contents(source: Path) -> None:
    before = source_digest(source)
    (source / "testbed" / "__init__.py").rename(source / "testbed" / "other.py")
    assert source_digest(source) != before


def test_folders_and_their_modes(tmp_path: Path) -> None:
    place = prepare_installation(tmp_path / "state", privileged=False)
    assert not place.privileged
    modes = {name: stat.S_IMODE((place.state / name).stat().st_mode) for name in ("runs", "run", "db", "log")}
    assert modes == {"runs": 0o1775, "run": 0o750, "db": 0o750, "log": 0o750}


def test_a_state_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="LOOPLANE_STATE") as caught:
        prepare_installation(tmp_path / "file" / "state", privileged=False)
    assert caught.value.code is ExitCode.HOST_CANNOT


def test_without_the_user_and_without_useradd_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="useradd --system") as caught:
        service_user("looplane-none", programs=str(tmp_path))
    assert caught.value.code is ExitCode.HOST_CANNOT


def test_services_get_no_more_of_the_environment_than_they_need(place: Installation) -> None:
    environment = place.environment({"SECRET_OF_ROOT": "x", "REDIS_URL": "redis://127.0.0.1"})
    assert "SECRET_OF_ROOT" not in environment
    assert environment["REDIS_URL"] == "redis://127.0.0.1"
    assert environment["LOOPLANE_STATE"] == str(place.state)


@pytest.mark.root
def test_as_root_the_state_belongs_to_root_and_the_database_to_the_user(tmp_path: Path) -> None:
    place = prepare_installation(tmp_path / "state")
    assert place.privileged
    owners = {
        name: ((place.state / name).stat().st_uid, (place.state / name).stat().st_gid)
        for name in ("runs", "run", "db", "log")
    }
    assert owners == {
        "runs": (0, place.gid),
        "run": (0, place.gid),
        "db": (place.uid, place.gid),
        "log": (0, place.gid),
    }
