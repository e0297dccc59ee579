"""The Docker engine: the one that answers on this host, or one of our own that leaves no trace on its network.

The only user of Docker, through its command line, whose status is always checked. Containers have no network of
Docker's (`--network none`), no capabilities, and a label that says whose they are. An engine of our own is started
with everything off that would touch the host (docker0, iptables, ip_forward: platform.md §4, faults B5, B6, B8, B11).
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from testbed.command.places import state_folder
from topologies import cells
from topologies.naming import CONTAINER_LABEL, RUN_ROOT
from topologies.programs import ProgramFailed, run
from topologies.registry import ProcessMark, end_processes, mark_of

OWN_SOCKET = RUN_ROOT / "docker.sock"
_EXEC_ROOT = RUN_ROOT / "docker"
_MARK = RUN_ROOT / "docker.json"
_USERS = RUN_ROOT / "docker.users"
_LOCK = RUN_ROOT / "docker.lock"
_CGROUP = "looplane-docker"
KEEP = "LOOPLANE_KEEP_DOCKER"
"""Environment variable: when set, an engine of our own outlives its last user."""
_START_PATIENCE_S, _STOP_PATIENCE_S = 30.0, 20.0


class DockerFault(Exception):
    """The engine, or a container, is not usable; the message says why."""


class Mount(NamedTuple):
    """A folder of the host, at the same place in the container."""

    path: Path
    writable: bool = False


class ContainerSpec(NamedTuple):
    """What a node's container gets."""

    name: str
    label: str
    image: str
    hostname: str
    cpus: tuple[int, ...]
    memory_mib: int
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]


class Docker:
    """One engine. `socket` is None for the one that the command line finds by itself."""

    def __init__(self, socket: Path | None) -> None:
        self.socket = socket
        self.command = ["docker"] if socket is None else ["docker", "-H", f"unix://{socket}"]

    def run(self, *arguments: str, stdin: str = "", timeout_s: float = 120.0) -> str:
        """One docker command. Raises ProgramFailed."""
        return run([*self.command, *arguments], stdin=stdin, timeout_s=timeout_s)

    def answers(self) -> bool:
        """Whether an engine is there."""
        try:
            self.run("version", "--format", "{{.Server.Version}}", timeout_s=10)
        except ProgramFailed:
            return False
        return True

    def start_container(self, spec: ContainerSpec) -> int:
        """Starts a container that sleeps until software is started in it; returns the pid of its first process.

        Raises ProgramFailed with Docker's words (name in use, image unknown), DockerFault when it ends at once.
        """
        words = [
            "run", "--detach", "--name", spec.name, "--label", f"{CONTAINER_LABEL}={spec.label}",
            "--hostname", spec.hostname[:63], "--network", "none", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp", "--workdir", "/",
            "--memory", f"{spec.memory_mib}m", "--pids-limit", "512",
            "--stop-timeout", "1", "--restart", "no",
        ]  # fmt: skip
        if spec.cpus:
            words += ["--cpuset-cpus", ",".join(map(str, spec.cpus))]
        for mount in spec.mounts:
            words += ["--mount", _mount(mount)]
        for key, value in spec.environment.items():
            words += ["--env", f"{key}={value}"]
        # The image's own command and entry point are not used: what runs in a node is the plan's, not the image's.
        self.run(*words, "--entrypoint", "sleep", spec.image, "infinity")
        pid, _ = self._state(spec.name)
        if pid == 0:
            raise DockerFault(self.fate(spec.name))
        return pid

    def fate(self, container: str) -> str:
        """How a container has ended and what it said last; empty while it runs. Raises ProgramFailed if it is gone."""
        pid, code = self._state(container)
        if pid:
            return ""
        said = self.run("logs", "--tail", "12", container).strip()
        return f"container {container} has ended with {code}: {said or '(it said nothing)'}"

    def exec_command(self, container: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs a program in a container and ends with its exit code."""
        return [*self.command, "exec", container, *argv]

    def processes(self, container: str) -> list[int]:
        """Pids, in the host's counting, of all processes in a container; none when it is not running."""
        try:
            pid, _ = self._state(container)
        except ProgramFailed:
            return []
        return cells.group_members(pid) if pid else []

    def signal(self, container: str, number: int) -> None:
        """Signals all software in a container, but not its first process, which only keeps it open."""
        pid, _ = self._state(container)
        for member in cells.group_members(pid) if pid else []:
            if member != pid:
                with suppress(ProcessLookupError):
                    os.kill(member, number)

    def labelled(self) -> dict[str, str]:
        """Label by name of every container that carries one of ours, running or not."""
        said = self.run(
            "ps", "--all", "--filter", f"label={CONTAINER_LABEL}",
            "--format", '{{.Names}}\t{{.Label "' + CONTAINER_LABEL + '"}}',
        )  # fmt: skip
        return dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)

    def remove(self, containers: Sequence[str]) -> None:
        """Kills and removes containers. Raises ProgramFailed."""
        if containers:
            self.run("rm", "--force", "--volumes", *containers)

    def _state(self, container: str) -> tuple[int, int]:
        said = self.run("inspect", "--format", "{{.State.Pid}} {{.State.ExitCode}}", container)
        pid, code = said.split()
        return int(pid), int(code)


def engine_that_answers() -> Docker | None:
    """The host's own engine, or one that we have started before; None when neither answers."""
    if shutil.which("docker") is None:
        return None
    for docker in (Docker(None), Docker(OWN_SOCKET)):
        if (docker.socket is None or docker.socket.exists()) and docker.answers():
            return docker
    return None


def startable() -> bool:
    """Whether an engine of our own could be started."""
    return os.geteuid() == 0 and None not in (shutil.which("docker"), shutil.which("dockerd"))


@contextmanager
def engine(user: str) -> Iterator[Docker]:
    """An engine for the length of the block, started if none answers and stopped with its last user.

    `user` is the run's label. Raises DockerFault when there is none and none can be started.
    """
    docker = acquire(user)
    try:
        yield docker
    finally:
        release(user)


def acquire(user: str) -> Docker:
    """See `engine`. What is acquired by a process that dies is released by the next one that looks."""
    with _locked():
        docker = engine_that_answers()
        if docker is not None and docker.socket is None:
            return docker
        _USERS.mkdir(mode=0o700, exist_ok=True)
        mark = mark_of(os.getpid(), f"docker {user}")
        (_USERS / f"{user}.{os.getpid()}").write_bytes(msgspec.json.encode(mark))
        return docker if docker is not None else _start()


def release(user: str) -> None:
    """Ends a use; the last one stops an engine of our own, unless `LOOPLANE_KEEP_DOCKER` is set."""
    with _locked():
        (_USERS / f"{user}.{os.getpid()}").unlink(missing_ok=True)
        _stop_if_unused()


def stop_if_unused() -> bool:
    """Stops an engine of our own that nobody living uses; for the reaper. True if something was stopped."""
    with _locked():
        return _stop_if_unused()


def in_use() -> bool:
    """Whether an engine of our own runs and somebody living uses it."""
    return own_engine() is not None and any(_live_users())


def own_engine() -> ProcessMark | None:
    """The engine that we have started, if it runs."""
    record = _record()
    return record.daemon if record is not None and record.daemon.alive() else None


class _OwnEngine(msgspec.Struct, frozen=True):
    """What is on record of an engine of our own."""

    daemon: ProcessMark
    data: str


def _record() -> _OwnEngine | None:
    try:
        return msgspec.json.decode(_MARK.read_bytes(), type=_OwnEngine)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _start() -> Docker:
    if not startable():
        raise DockerFault("no Docker engine answers and none can be started (apt-get install docker.io)")
    _sweep_killed()
    data = state_folder() / "docker"
    data.mkdir(parents=True, exist_ok=True)
    log = data.with_suffix(".log")
    argv = [
        "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
        "--data-root", str(data), "--exec-root", str(_EXEC_ROOT), "--pidfile", str(RUN_ROOT / "docker.pid"),
        "--host", f"unix://{OWN_SOCKET}", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", _CGROUP,
        "--shutdown-timeout", "5",
    ]  # fmt: skip
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", start_new_session=True
        )
    mark = mark_of(daemon.pid, "dockerd")
    if mark is not None:
        _MARK.write_bytes(msgspec.json.encode(_OwnEngine(mark, str(data))))
    docker = Docker(OWN_SOCKET)
    end = time.monotonic() + _START_PATIENCE_S
    while daemon.poll() is None and time.monotonic() < end:
        if OWN_SOCKET.exists() and docker.answers():
            daemon.returncode = 0  # not ours to wait for: it may outlive this process
            return docker
        time.sleep(0.1)
    words = "\n".join(log.read_text(errors="replace").splitlines()[-6:])
    _stop_if_unused(force=True)
    raise DockerFault(f"dockerd did not come up (exit {daemon.poll()}): {words}")


def _stop_if_unused(*, force: bool = False) -> bool:
    if not force and (any(_live_users()) or os.environ.get(KEEP)):
        return False
    if not _MARK.exists() and not _EXEC_ROOT.exists():
        return False
    mark = own_engine()
    if mark is not None:
        mark.signal(signal.SIGTERM)
        end = time.monotonic() + _STOP_PATIENCE_S
        while mark.alive() and time.monotonic() < end:
            with suppress(ChildProcessError):  # bury it, if it is our own child
                os.waitpid(mark.pid, os.WNOHANG)
            time.sleep(0.05)
        end_processes([mark])
    _sweep_killed()
    shutil.rmtree(_EXEC_ROOT, ignore_errors=True)
    shutil.rmtree(_USERS, ignore_errors=True)
    for path in (_MARK, OWN_SOCKET, RUN_ROOT / "docker.pid"):
        path.unlink(missing_ok=True)
    cells.remove_empty(_CGROUP)
    return True


def _sweep_killed() -> None:
    """Ends and unmounts what an engine of our own leaves when it is killed; after an ordinary stop there is nothing.

    Its containers are known by the group that only it makes, containerd and its shims by our folder in their words.
    """
    if own_engine() is not None:
        return
    record = _record()
    cells.kill_group(_CGROUP)
    folder = f"{_EXEC_ROOT}/".encode()
    helpers = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            program, words = (path / "exe").readlink().name, (path / "cmdline").read_bytes()
        except OSError:
            continue
        if program.startswith("containerd") and folder in words:
            helpers.append(mark_of(int(path.name), program))
    end_processes(helper for helper in helpers if helper is not None)
    # A zombie that nobody has buried yet, or a number that a stranger has now, would pass for one that runs.
    for pidfile in (_EXEC_ROOT / "containerd" / "containerd.pid", RUN_ROOT / "docker.pid"):
        pidfile.unlink(missing_ok=True)
    roots = [_EXEC_ROOT, *([Path(record.data)] if record is not None else [])]
    points = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted(points, reverse=True):
        if any(root == point or root in point.parents for root in roots):
            run(["umount", str(point)])


def _live_users() -> Iterator[str]:
    for path in _USERS.iterdir() if _USERS.is_dir() else ():
        try:
            if msgspec.json.decode(path.read_bytes(), type=ProcessMark).alive():
                yield path.name
        except (FileNotFoundError, msgspec.MsgspecError):
            continue


@contextmanager
def _locked() -> Iterator[None]:
    RUN_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _mount(mount: Mount) -> str:
    """A `--mount` value: CSV, since a path may hold commas and colons."""
    fields = ["type=bind", f"source={mount.path}", f"target={mount.path}"]
    if not mount.writable:
        fields.append("readonly")
    line = io.StringIO()
    csv.writer(line).writerow(fields)
    return line.getvalue().strip()
