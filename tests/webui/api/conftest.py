"""A web process on the tests' own database, and callers with tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.webui.api.calling import Caller
from tests.webui.web_process import web_process
from webui.accounts.models import User


@pytest.fixture(scope="module")
def served(state_folder: Path, django_db_setup: None) -> Iterator[str]:
    """Its address. Without rate limits: what is asked here is asked as fast as it goes."""
    with web_process(state_folder, LOOPLANE_RATE_LIMITS="api=0,strangers=0,runs=0,exports=0") as place:
        yield f"http://{place}"


@pytest.fixture
def call(user: User) -> Caller:
    """A runner."""
    return Caller(user)
