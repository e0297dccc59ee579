from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from webui.settings.secret_key import secret_key


def test_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "secret_key"
    first = secret_key(path)
    assert len(first) >= 50
    assert secret_key(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret_key"]


def test_without_a_folder_it_lives_for_the_process_alone(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "secret_key"
    assert secret_key(missing) != secret_key(missing)
    assert not missing.parent.exists()


@pytest.mark.root
def test_root_makes_none_in_the_service_users_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert secret_key(tmp_path / "secret_key")
    assert not list(tmp_path.iterdir())


def test_two_installations_differ(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert secret_key(tmp_path / "a" / "key") != secret_key(tmp_path / "b" / "key")
