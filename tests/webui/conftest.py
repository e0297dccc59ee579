"""Django for the tests of the console: a state folder of their own, a database file that other processes can open."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# Settings read the environment once, when they are imported; nothing of it leaks into other tests, nor into the
# processes of pytest-xdist: a DJANGO_SETTINGS_MODULE would have them read the settings before they come here, and all
# of them would open this machine's own console.
_STATE = Path(tempfile.mkdtemp(prefix="looplane-webui-"))
for _name in ("db", "runs", "run", "log"):
    (_STATE / _name).mkdir()
with mock.patch.dict(os.environ, {"LOOPLANE_STATE": str(_STATE)}):
    for _name in ("DATABASE_URL", "REDIS_URL", "LOOPLANE_HTTPS", "LOOPLANE_HOSTS"):
        os.environ.pop(_name, None)
    # A PostgreSQL for services and API, by hand: tests that start processes of their own need the SQLite file.
    if os.environ.get("LOOPLANE_TEST_DATABASE_URL"):
        os.environ["DATABASE_URL"] = os.environ["LOOPLANE_TEST_DATABASE_URL"]
    os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
    import django

    django.setup()

from django.conf import settings  # noqa: E402
from django.test import Client  # noqa: E402

# The real hasher takes a third of a second on purpose; what is tested here is who gets in, not how slowly.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

SMALL = Path(__file__).resolve().parents[2] / "fixtures" / "experiments" / "blink" / "small.toml"


def pytest_unconfigure() -> None:
    """Also in the process that only hands out tests, where no fixture runs."""
    shutil.rmtree(_STATE, ignore_errors=True)


@pytest.fixture(scope="session")
def state_folder() -> Path:
    return _STATE


@pytest.fixture(autouse=True)
def metering_waits() -> None:
    """Its few seconds never end within a request whose queries a test counts; tests of metering write by themselves."""
    from webui.metering.counting import here

    here._due = math.inf


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """The test database is the very file that a console on this state folder opens."""
    for database in settings.DATABASES.values():
        if "sqlite3" in database["ENGINE"]:
            database.setdefault("TEST", {})["NAME"] = str(database["NAME"])


@pytest.fixture(scope="session")
def runs_folder() -> Path:
    return Path(settings.RUNS_FOLDER)


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole simulated run, through the command's own functions."""
    from tests.simulated_runs import simulated

    requests = 24
    expected = f'expect."systems.blink.requests.completed".equals={requests}'
    overrides = [f"workload.requests={requests}", "workload.lengths.output_high=60", expected]
    return simulated(SMALL, overrides, tmp_path_factory.mktemp("recorded")).path


@pytest.fixture
def put_run(recorded_run: Path, runs_folder: Path) -> Iterator[Callable[[str], Path]]:
    """Copies the recorded run into the console's runs under another id; removed afterwards."""
    made: list[Path] = []

    def put(run_id: str) -> Path:
        target = runs_folder / run_id
        shutil.copytree(recorded_run, target)
        made.append(target)
        return target

    yield put
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_user(db: None) -> Callable[..., Any]:
    from webui.accounts.models import User

    def make(name: str = "ada", *, role: str = "runner") -> Any:
        user = User(username=name, role=role)
        user.set_password("correct-horse-9")
        user.save()
        return user

    return make


@pytest.fixture
def user(make_user: Callable[..., Any]) -> Any:
    return make_user()


@pytest.fixture
def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def make_run(user: Any) -> Callable[..., Any]:
    """A row, without any service; states may be set as a test needs them."""
    from django.utils import timezone

    from testbed.experiment.run_folder import new_run_id
    from webui.runs.models import Run

    def make(**fields: Any) -> Any:
        values = {
            "id": new_run_id(timezone.now()),
            "question": "Does it work?",
            "backend": "sim",
            "spec": SMALL.read_text(),
            "owner": user,
        } | fields
        return Run.objects.create(**values)

    return make


@pytest.fixture
def make_bench(db: None) -> Callable[..., Any]:
    """A bench that is well and has just reported, this machine's unless it is named; fields as a test needs them."""
    from django.utils import timezone

    from webui.benches.identity import bench_here
    from webui.benches.models import Bench

    def make(name: str = "", **fields: Any) -> Any:
        values = {
            "health": "well",
            "seen_at": timezone.now(),
            "abilities": {"simulate": True, "emulate": True, "containers": True},
            "facts": {"cores": 4, "slots": 3, "memory_mib": 8192},
        } | fields
        return Bench.objects.create(name=name or bench_here(), **values)

    return make


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids that were told to the workers; no broker is touched."""
    from webui.celery import app

    found: list[str] = []
    monkeypatch.setattr(app, "send_task", lambda _name, args, **_: found.append(args[0]))
    return found
