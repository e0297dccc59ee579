"""Docker: an engine of our own that leaves no trace, containers as nodes need them, images that can run a node."""

from __future__ import annotations

import io
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import host_state
import pytest

from topologies import docker_host, images, reaper
from topologies.docker_host import ContainerSpec, Docker, DockerFault, Mount
from topologies.programs import ProgramFailed, run, run_watched

pytestmark = [pytest.mark.root, pytest.mark.docker, pytest.mark.usefixtures("unchanged_host")]


@pytest.fixture
def docker(label: str) -> Iterator[Docker]:
    with docker_host.engine(label) as engine:
        yield engine


@pytest.fixture
def image(docker: Docker) -> str:
    return images.ensure(docker, lambda _text: None)


def spec(label: str, image: str, **changes: object) -> ContainerSpec:
    made = ContainerSpec(f"looplane-{label}-a", label, image, "a", (), 64, (), {"GREETING": "it's here"})
    return made._replace(**changes)  # type: ignore[arg-type]


def remove_all(docker: Docker, label: str) -> None:
    docker.remove([name for name, owner in docker.labelled().items() if owner == label])


def test_an_engine_of_our_own_starts_serves_and_is_gone(label: str) -> None:
    if docker_host.engine_that_answers() is not None:
        pytest.skip("an engine answers already, so none of our own is started")
    before = host_state.snapshot()
    with docker_host.engine(label) as engine:
        assert engine.socket == docker_host.OWN_SOCKET
        assert engine.answers()
        assert docker_host.in_use()
        for what in ("link", "iptables-save", "ip6tables-save", "sysctl", "netns"):
            now = {line for line in host_state.snapshot() if line.startswith(what)}
            assert now == {line for line in before if line.startswith(what)}
        with docker_host.engine(label[::-1]) as same:  # a second user keeps it up
            assert same.socket == engine.socket
        assert engine.answers()
    assert docker_host.own_engine() is None
    assert not docker_host.OWN_SOCKET.exists()
    assert list(Path("/sys/fs/cgroup").glob("*/looplane-docker")) == []


def test_an_engine_whose_user_died_is_stopped_and_one_that_is_kept_is_not(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if docker_host.engine_that_answers() is not None:
        pytest.skip("an engine answers already, so none of our own is started")
    pid = os.fork()
    if pid == 0:
        try:
            docker_host.acquire(label)
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert docker_host.own_engine() is not None
    monkeypatch.setenv(docker_host.KEEP, "1")
    assert docker_host.stop_if_unused() is False
    monkeypatch.delenv(docker_host.KEEP)
    assert docker_host.stop_if_unused() is True
    assert docker_host.own_engine() is None


def test_an_engine_that_was_killed_is_cleaned_up_and_started_anew(label: str) -> None:
    if docker_host.engine_that_answers() is not None:
        pytest.skip("an engine answers already, so none of our own is started")
    docker_host.acquire(label)
    mark = docker_host.own_engine()
    assert mark is not None
    image = images.ensure(Docker(docker_host.OWN_SOCKET), lambda _text: None)
    pid = Docker(docker_host.OWN_SOCKET).start_container(spec(label, image))
    os.kill(mark.pid, signal.SIGKILL)
    os.waitpid(mark.pid, 0)
    assert Path(f"/proc/{pid}").exists()  # the container lives on without its engine
    with docker_host.engine(label) as engine:
        assert engine.answers()
        assert not Path(f"/proc/{pid}").exists()
        remove_all(engine, label)
    assert docker_host.own_engine() is None


def test_an_engine_that_was_killed_with_its_user_is_reaped_whole(label: str) -> None:
    if docker_host.engine_that_answers() is not None:
        pytest.skip("an engine answers already, so none of our own is started")
    docker = docker_host.acquire(label)
    pid = docker.start_container(spec(label, images.ensure(docker, lambda _text: None)))
    mark = docker_host.own_engine()
    assert mark is not None
    os.kill(mark.pid, signal.SIGKILL)
    os.waitpid(mark.pid, 0)
    docker_host.release(label)
    assert not Path(f"/proc/{pid}").exists()
    assert not docker_host.OWN_SOCKET.exists()
    with docker_host.engine(label) as engine:
        remove_all(engine, label)  # its record is the engine's own and comes back with it


def test_a_container_has_no_network_no_rights_and_only_what_is_mounted(
    docker: Docker, image: str, label: str, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "with, comma: and 'quote'", tmp_path / "read only"
    for folder in (mine, theirs):
        folder.mkdir()
    core = max(os.sched_getaffinity(0))
    mounts = (Mount(mine, writable=True), Mount(theirs))
    try:
        pid = docker.start_container(spec(label, image, mounts=mounts, cpus=(core,)))
        program = f"""
import os, pathlib, socket
print(sorted(os.listdir("/sys/class/net")), os.environ["GREETING"], sorted(os.sched_getaffinity(0)))
pathlib.Path({str(mine)!r}, "x").write_text("written")
for path in ({str(theirs)!r}, "/etc"):
    try: pathlib.Path(path, "x").touch(); print("writable")
    except OSError as fault: print(fault.strerror)
pathlib.Path("/tmp/x").touch()
try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print("raw")
except OSError as fault: print(fault.strerror)
fd = os.memfd_create("ring"); os.ftruncate(fd, 4096); print("memfd")
"""
        said = run(docker.exec_command(f"looplane-{label}-a", ["python3", "-c", program]))
        assert said.splitlines() == [
            f"['lo'] it's here [{core}]", "Read-only file system", "Read-only file system", "Operation not permitted",
            "memfd",
        ]  # fmt: skip
        assert (mine / "x").read_text() == "written"
        assert docker.processes(f"looplane-{label}-a") == [pid]
        assert docker.labelled()[f"looplane-{label}-a"] == label
        memory = docker.run("inspect", "--format", "{{.HostConfig.Memory}}", f"looplane-{label}-a")
        assert int(memory) == 64 << 20
    finally:
        remove_all(docker, label)


def test_signals_reach_the_software_but_not_the_keeper(docker: Docker, image: str, label: str) -> None:
    try:
        pid = docker.start_container(spec(label, image))
        command = docker.exec_command(f"looplane-{label}-a", ["sleep", "600"])
        with subprocess.Popen(command) as software:
            end = time.monotonic() + 20
            while len(docker.processes(f"looplane-{label}-a")) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            docker.signal(f"looplane-{label}-a", signal.SIGTERM)
            assert software.wait(20) == 128 + signal.SIGTERM
        assert docker.processes(f"looplane-{label}-a") == [pid]
    finally:
        remove_all(docker, label)


def import_tar(docker: Docker, name: str, tmp_path: Path, files: dict[str, bytes], command: str = '["/false"]') -> str:
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as tar:
        for member, data in files.items():
            facts = tarfile.TarInfo(member)
            facts.size, facts.mode = len(data), 0o755
            tar.addfile(facts, io.BytesIO(data))
    docker.run("import", "--change", f"CMD {command}", str(path), name)
    return name


def test_an_image_that_cannot_run_a_node_is_refused_before_use(
    docker: Docker, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = import_tar(docker, f"looplane-test-{label}:broken", tmp_path, {"etc/nothing": b""})
    try:
        monkeypatch.setenv("LOOPLANE_IMAGE", broken)
        with pytest.raises(images.ImageFault, match=f"image {broken} cannot run a node: (?s:.*)sleep"):
            images.ensure(docker, lambda _text: None)
        with pytest.raises(ProgramFailed, match="sleep"):
            docker.start_container(spec(label, broken))
    finally:
        remove_all(docker, label)
        docker.run("rmi", "--force", broken)


def test_a_container_that_ends_at_once_says_so(docker: Docker, image: str, label: str, tmp_path: Path) -> None:
    # `sleep` here is a script that ends with 3: as an image whose command is `false` would (fault A13).
    context = tmp_path / "context"
    context.mkdir()
    (context / "sleep").write_text("#!/bin/sh\necho no time to sleep\nexit 3\n")
    (context / "sleep").chmod(0o755)
    (context / "Dockerfile").write_text(f"FROM {image}\nCOPY sleep /usr/local/bin/sleep\n")
    name = f"looplane-test-{label}:ends"
    run(["env", "DOCKER_BUILDKIT=0", *docker.command, "build", "--quiet", "--tag", name, str(context)])
    try:
        with suppress(DockerFault):  # it may have ended before anybody looks, or a moment later
            docker.start_container(spec(label, name))
        end = time.monotonic() + 20
        while not docker.fate(f"looplane-{label}-a") and time.monotonic() < end:
            time.sleep(0.05)
        fate = docker.fate(f"looplane-{label}-a")
        assert fate == f"container looplane-{label}-a has ended with 3: no time to sleep"
    finally:
        remove_all(docker, label)
        docker.run("rmi", "--force", name)


def test_an_image_that_is_not_there_is_named(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLANE_IMAGE", "nobody/has:this")
    with pytest.raises(images.ImageFault, match=r"nobody/has:this .* is not on this engine"):
        images.ensure(docker, lambda _text: None)


@pytest.mark.parametrize("buildkit", ["0", "1"])
def test_the_dockerfile_builds_with_both_builders(
    docker: Docker, image: str, label: str, buildkit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if buildkit == "1" and "buildx" not in docker.run("info", "--format", "{{json .ClientInfo.Plugins}}"):
        pytest.skip("this docker command has no buildx plug-in, so it has no BuildKit")
    monkeypatch.setenv("DOCKER_BUILDKIT", buildkit)
    name = f"looplane-test-{label}:built"
    # Our own image stands for python:…-slim, which needs a registry.
    images.build_from_dockerfile(docker, name, image, lambda: None)
    try:
        images.validate(docker, name)
    finally:
        docker.run("rmi", "--force", name)


# --- without an engine ----------------------------------------------------------------------------------------------


def test_a_build_that_takes_long_is_heard_of_and_its_fault_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_TELL_S", 0.2)
    said: list[str] = []
    watch = images._telling(said.append, "building it", lambda: None)
    run_watched(["sleep", "0.7"], watch, timeout_s=30)
    assert 1 <= len(said) <= 3
    assert all(line.startswith("building it: ") for line in said)
    with pytest.raises(ProgramFailed, match="no mirror"):
        run_watched(["sh", "-c", "echo no mirror >&2; exit 1"], watch, timeout_s=30)


def test_a_build_that_is_cancelled_ends_at_once_with_all_that_it_started(tmp_path: Path) -> None:
    class Cancelled(Exception):
        pass

    ready = tmp_path / "ready"

    def cancel_when_ready() -> None:
        if ready.exists():
            raise Cancelled

    mark = f"looplane-test-{tmp_path.name}"
    script = f"setsid sh -c 'exec -a {mark} sleep 600' & mount -t tmpfs none {tmp_path}; touch {ready}; sleep 600"
    script = script.replace(f"touch {ready}", f"umount {tmp_path}; touch {ready}")
    began = time.monotonic()
    with pytest.raises(Cancelled):
        run_watched(["bash", "-c", script.replace("setsid sh", "setsid bash")], cancel_when_ready, timeout_s=30)
    # The namespace's first process is killed with its parent, and the kernel then kills the rest a moment later.
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if _words(path).startswith(mark)]:
        assert time.monotonic() - began < 10, left
        time.sleep(0.02)


def _words(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_root_file_system_whose_builder_was_killed_is_reaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLANE_STATE", str(tmp_path))
    builder = (
        "import fcntl, os, tempfile, time; from topologies import images\n"
        f"made = tempfile.mkdtemp(prefix=images._ROOTFS, dir={str(tmp_path)!r}); lock = os.open(made, os.O_RDONLY)\n"
        "fcntl.flock(lock, fcntl.LOCK_EX); print(made, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", builder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = Path(process.stdout.readline().strip())
        assert images.abandoned() == []
        process.kill()
    assert images.abandoned() == [made]
    found = reaper.reap()
    assert f"folder {made}" in [str(leftover) for leftover in found.removed]
    assert not made.exists()


def test_apt_source_of_this_host() -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("no apt on this host")
    source = images.apt_source()
    assert source.suite == platform.freedesktop_os_release()["VERSION_CODENAME"]
    assert "://" in source.mirror


def test_apt_sources_in_both_styles() -> None:
    stanza = "# a comment\nTypes: deb deb-src\nURIs: http://a/x\n  http://b/x\nSuites: s s-updates\nComponents: main\n"
    (fields,) = images._stanzas(stanza + "Signed-By: /k.gpg\n\nTypes: deb-src\nURIs: u\nSuites: s\nComponents: main\n")
    assert (fields["uris"].split()[0], fields["suites"], fields["signed-by"]) == ("http://a/x", "s s-updates", "/k.gpg")
    assert images._stanzas(stanza + "Enabled: no\n") == []
    lines = "deb [arch=amd64 signed-by=/k.gpg] http://a/x s main contrib # words\n#deb http://c/x s main\n"
    (fields,) = images._lines(lines + "deb-src u s main\n")
    assert fields == {"uris": "http://a/x", "suites": "s", "components": "main contrib", "signed-by": "/k.gpg"}


def test_the_recipe_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = images.recipe_digest()
    assert first == images.recipe_digest()
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0), raising=False)
    monkeypatch.setattr(images, "_python", lambda: "3.99")
    assert images.recipe_digest() != first


def test_our_containers_need_nothing_of_dockers_address_pools(
    docker: Docker, image: str, label: str, soak: bool
) -> None:
    """Faults B5, B6: a network over our own subnet, and (soak) so many that no pool is left, are no obstacle."""
    names = [f"looplane-{label}-net{number}" for number in range(41 if soak else 3)]
    made: list[str] = []
    refused = ""
    try:
        for name in names:
            subnet = ["--subnet", "10.60.0.0/24"] if not made else []
            try:
                docker.run("network", "create", *subnet, name)
            except ProgramFailed as fault:
                refused = str(fault)
                break
            made.append(name)
        assert made == names or (len(made) > 20 and "address pool" in refused), refused
        assert docker.start_container(spec(label, image)) > 0
        assert docker.fate(f"looplane-{label}-a") == ""
    finally:
        remove_all(docker, label)
        for name in made:
            docker.run("network", "rm", name)
