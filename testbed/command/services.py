"""The console's processes as services, and what has to stand before they start: servers that answer, and tables.

runnerd is root's, web and worker are the service user's (design/console.md §7). A console has all three; a bench that
joins a console elsewhere has no web process and makes no tables.
"""

from __future__ import annotations

import sys
from typing import Any

from testbed.command.bench_flags import BenchFlags
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.installation import Installation
from testbed.command.supervise import Service

WORKER_THREADS = 8
"""A worker's task only waits for processes; how many may run at once is decided elsewhere (webui.benches)."""
_CODES = {2: ExitCode.BAD_INPUT, 3: ExitCode.HOST_CANNOT}


def check_interpreter(place: Installation) -> None:
    """The service user must be able to run this Python: one in a home folder fails in odd ways. Raises CommandError."""
    place.run_as_user([sys.executable, "-c", "import django, channels, celery, uvicorn, testbed"], timeout_s=60)


def check_servers(place: Installation) -> None:
    """Those that DATABASE_URL and REDIS_URL name must answer. Raises CommandError."""
    _servers(place, "check")


def make_tables(place: Installation) -> None:
    """As the service user: a database file that root makes is read-only for others. Raises CommandError."""
    _servers(place, "migrate", patience_s=600)


def check_tables(place: Installation) -> None:
    """The console's must be of this version. Raises CommandError."""
    _servers(place, "tables")


def _servers(place: Installation, verb: str, patience_s: float = 60) -> None:
    done = place.try_as_user([sys.executable, "-m", "webui.servers", verb], timeout_s=patience_s)
    if done.returncode != 0:
        words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise CommandError(words, _CODES.get(done.returncode, ExitCode.HOST_CANNOT))


def runnerd_service(place: Installation) -> list[Service]:
    """The privileged runner; none without root, where only simulations can run."""
    if not place.privileged:
        return []
    words = ["-m", "topologies.runnerd", "--state", str(place.state), "--runs", str(place.runs)]
    words += ["--python", sys.executable, "--user", place.user]
    return [_service(place, "runnerd", words, patience_s=30.0)]


def web_service(place: Installation, listener: int) -> Service:
    """The web process, on an inherited listening socket."""
    words = ["-m", "webui.serve", "--fd", str(listener)]
    return _service(place, "web", words, **_as_user(place), descriptors=(listener,))


def worker_service(place: Installation, bench: BenchFlags) -> Service:
    """The worker, which is its bench's voice."""
    words = ["-m", "celery", "--app", "webui.celery", "--quiet", "worker", "--pool", "threads"]
    words += ["--concurrency", str(WORKER_THREADS), "--loglevel", "WARNING"]
    words += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    words += ["--hostname", f"{bench.name or 'console'}@%h"]
    told = bench.environment()
    return _service(place, "worker", words, **_as_user(place), patience_s=20.0, more=told)


def _as_user(place: Installation) -> dict[str, Any]:
    return {"user": place.uid, "group": place.gid} if place.privileged else {}


def _service(
    place: Installation, name: str, words: list[str], more: dict[str, str] | None = None, **rest: Any
) -> Service:
    environment = place.environment() | (more or {})
    return Service(name, [sys.executable, *words], environment, place.app, place.logs / f"{name}.log", **rest)
