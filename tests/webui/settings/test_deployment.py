"""Settings as `check --deploy` sees them, and the headers that a browser gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from testbed.command.places import SOURCE


@pytest.mark.parametrize("https", ["", "1"])
def test_check_deploy_finds_nothing(https: str, tmp_path: Path) -> None:
    environment = {**os.environ, "LOOPLANE_STATE": str(tmp_path), "LOOPLANE_HTTPS": https}
    words = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(words, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if https:
        assert "0 silenced" in done.stdout


def test_migrations_are_complete(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_debug_cannot_be_on() -> None:
    assert settings.DEBUG is False


def test_headers_of_a_page(client: Client, db: None) -> None:
    headers = client.get("/login").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert "no-store" in headers["Cache-Control"]
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]


def test_an_unknown_host_is_refused(client: Client, db: None) -> None:
    assert client.get("/login", HTTP_HOST="evil.example").status_code == 400


def test_the_index_needs_no_session_framework_of_its_own(client: Client, db: None) -> None:
    response = client.get("/")
    assert response.status_code == 302
    assert response.headers["Location"].startswith("/login")
    assert client.get("/healthz").content == b"ok"
