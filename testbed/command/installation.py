"""The console's place on this host: state folder, service user, and a copy of the source that the user can read.

As root, the web process and the worker run as the unprivileged user `looplane` (design/console.md §7). The source may
lie where that user cannot look (a home folder), so it is copied to `$STATE/app`, which root owns. Without root all of
it belongs to whoever calls, and only simulations can run.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import SOURCE, is_root
from testbed.experiment.provenance import COPIED_FROM, source_revision

USER = "looplane"
STAGED = ("testbed", "emulators", "topologies", "webui", "fixtures", "manage.py", "pyproject.toml", "LICENSE")
_PASSED_ON = (
    "DATABASE_URL", "REDIS_URL", "LOOPLANE_HOSTS", "LOOPLANE_HTTPS", "LOOPLANE_TRUSTED_PROXIES", "LOOPLANE_HOOK_HOSTS",
    "LOOPLANE_RATE_LIMITS",
    "LANG", "LC_ALL", "TZ",
)  # fmt: skip
"""What of the caller's environment reaches the services; the rest may hold secrets of root's."""


@dataclass(frozen=True)
class Installation:
    """Where things are and whose they are."""

    state: Path
    user: str
    uid: int
    gid: int
    privileged: bool
    """Started by root, so that runnerd can run and services change their user."""
    shared_runs: Path | None = None
    """Run folders that other benches use too; None keeps them in the state folder."""

    @property
    def runs(self) -> Path:
        """Where run folders are made."""
        return self.shared_runs or self.state / "runs"

    @property
    def app(self) -> Path:
        """The staged source."""
        return self.state / "app"

    @property
    def sockets(self) -> Path:
        """Runnerd's socket and the supervisor's pid."""
        return self.state / "run"

    @property
    def logs(self) -> Path:
        """Output of the services."""
        return self.state / "log"

    @property
    def pidfile(self) -> Path:
        """Of the supervisor; `looplane stop` reads it."""
        return self.sockets / "supervisor.pid"

    def environment(self, caller: Mapping[str, str] = os.environ) -> dict[str, str]:
        """For every service: little of the caller's."""
        passed = {name: caller[name] for name in _PASSED_ON if name in caller}
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.state / "db"),
            "LOOPLANE_STATE": str(self.state),
            "LOOPLANE_RUNS": str(self.runs),
            "PYTHONPATH": str(self.app),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DJANGO_SETTINGS_MODULE": "webui.settings",
            "LOOPLANE_RUNNERD": "1" if self.privileged else "0",
            **passed,
        }

    def run_as_user(self, command: list[str], *, timeout_s: float = 120.0) -> str:
        """Runs a command to its end as the service user; its standard output. Raises CommandError if it fails."""
        done = self.try_as_user(command, timeout_s=timeout_s)
        if done.returncode != 0:
            words = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            what = " ".join(command[1:4])
            raise CommandError(f"{what} as user {self.user}: {words}", ExitCode.HOST_CANNOT)
        return done.stdout

    def try_as_user(self, command: list[str], *, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """The same, for commands that may fail and say why."""
        return subprocess.run(
            command,
            cwd=self.app,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            umask=0o027,
            user=self.uid if self.privileged else None,
            group=self.gid if self.privileged else None,
            extra_groups=[] if self.privileged else None,
        )


def prepare_installation(
    state: Path, shared_runs: Path | None = None, *, privileged: bool | None = None
) -> Installation:
    """Makes user and folders where they are missing. Raises CommandError if this host does not allow it.

    `shared_runs` is a folder of runs that other benches use too. `privileged` is whether to take a service user of its
    own; only root can, and does unless told otherwise.
    """
    privileged = is_root() if privileged is None else privileged
    if privileged:
        entry = service_user()
        place = Installation(state, entry.pw_name, entry.pw_uid, entry.pw_gid, True, shared_runs)
    else:
        me = pwd.getpwuid(os.getuid())
        place = Installation(state, me.pw_name, me.pw_uid, me.pw_gid, False, shared_runs)
    root, user, group = (0, place.uid, place.gid) if privileged else (place.uid, place.uid, place.gid)
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Sticky and group-writable: the user makes folders for simulations and cannot touch root's emulations.
        _own(place.runs, root, group, 0o1775)
        _own(place.sockets, root, group, 0o750)
        _own(place.logs, root, group, 0o750)
        _own(state / "db", user, group, 0o750)
    except OSError as fault:
        where = fault.filename or state
        words = f"{where}: {fault.strerror}; LOOPLANE_STATE and LOOPLANE_RUNS name other places"
        raise CommandError(words, ExitCode.HOST_CANNOT) from fault
    return place


def service_user(name: str = USER, programs: str = "/usr/sbin:/sbin:/usr/bin") -> pwd.struct_passwd:
    """The service user, made by useradd if there is none. Raises CommandError with what to do by hand."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    program = shutil.which("useradd", path=programs)
    by_hand = f"useradd --system --user-group --home-dir /var/lib/looplane --shell /usr/sbin/nologin {name}"
    if program is None:
        words = f"this host has no user {name} and no useradd; make it another way: {by_hand}"
        raise CommandError(words, ExitCode.HOST_CANNOT)
    done = subprocess.run([program, *by_hand.split()[1:]], capture_output=True, text=True, check=False)
    try:
        return pwd.getpwnam(name)
    except KeyError:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        words = f"the user {name} could not be made ({why}); by hand: {by_hand}"
        raise CommandError(words, ExitCode.HOST_CANNOT) from None


def _own(folder: Path, uid: int, gid: int, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, uid, gid)
    folder.chmod(mode)


def stage_source(place: Installation, source: Path = SOURCE) -> bool:
    """Copies the source to `$STATE/app`, compiled, if it differs from what is there; True if it did.

    The new copy appears whole: it is made beside the old one and put in its place by renaming.
    """
    digest = source_digest(source)
    mark = place.app / ".digest"
    if mark.is_file() and mark.read_text() == digest:
        _note_revision(place.app, source)
        return False
    fresh, old = place.state / "app.new", place.state / "app.old"
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(mode=0o755)
    for path in _files(source):
        target = fresh / path.relative_to(source)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    # Bytecode names the place where it will lie, not where it is made.
    compileall.compile_dir(fresh, quiet=2, stripdir=str(fresh), prependdir=str(place.app))
    (fresh / ".digest").write_text(digest)
    _note_revision(fresh, source)
    if place.app.exists():
        place.app.rename(old)
    fresh.rename(place.app)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _note_revision(copy: Path, source: Path) -> None:
    (copy / COPIED_FROM).write_text(source_revision(source) or "")


def source_digest(source: Path) -> str:
    """SHA-256 over names and contents of what is staged."""
    digest = hashlib.sha256()
    for path in _files(source):
        digest.update(f"{path.relative_to(source)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(source: Path) -> Iterator[Path]:
    for name in STAGED:
        top = source / name
        if top.is_file():
            yield top
            continue
        for path in sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path
