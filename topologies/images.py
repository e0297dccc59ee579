"""The base image of containerised nodes: found, or built, and validated before anything is started in it (fault G5).

It holds Python, libatomic and what neighbours run (pbzip2, make, tcc); source and libraries are mounted from the host
at the same paths. Built from a
debootstrap root file system with the mirror that the host's own apt uses (read at run time), or, by choice
(`LOOPLANE_IMAGE_FROM=dockerfile`), from `FROM python:…`. `LOOPLANE_IMAGE` names an image of the user's own instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from testbed.command.places import state_folder
from topologies.docker_host import Docker, DockerFault, Mount
from topologies.processes import SOURCE, python_environment, site_packages
from topologies.programs import ProgramFailed, run_watched

IMAGES = SOURCE / "emulators" / "images"
_BUILD_TIMEOUT_S = 900.0
_ROOTFS = "looplane-rootfs-"
_TELL_S = 5.0
"""Between two lines of progress; whoever watches takes a run for lost after a minute without a word."""
_PROBE = """
import ctypes, sys
import cffi, msgspec, numpy
ctypes.CDLL("libatomic.so.1")
print("%d.%d" % sys.version_info[:2])
"""


class AptSource(NamedTuple):
    """Where the host's apt gets its release from."""

    suite: str
    mirror: str
    keyring: str


class ImageFault(DockerFault):
    """No usable image; the message says what is missing."""


def ensure(docker: Docker, progress: Callable[[str], None], check: Callable[[], None] = lambda: None) -> str:
    """The image for nodes, built when the engine has none. Raises ImageFault or ProgramFailed.

    What `check` raises, asked ten times a second, ends a build at once and is raised here.
    """
    chosen = os.environ.get("LOOPLANE_IMAGE")
    image = chosen or f"looplane-base:{recipe_digest()}"
    if not has_image(docker, image):
        if chosen:
            raise ImageFault(f"the image {chosen} (LOOPLANE_IMAGE) is not on this engine (docker pull {chosen})")
        watch = _telling(progress, f"building {image}", check)
        if os.environ.get("LOOPLANE_IMAGE_FROM") == "dockerfile" or shutil.which("debootstrap") is None:
            base = f"python:{_python()}-slim"
            progress(f"building {image} from {base}")
            build_from_dockerfile(docker, image, base, watch)
        else:
            progress(f"building {image} by debootstrap (once, under a minute)")
            build_from_debootstrap(docker, image, watch)
    validate(docker, image)
    return image


def _telling(progress: Callable[[str], None], what: str, check: Callable[[], None]) -> Callable[[], None]:
    """A `watch` that says every few seconds that it still goes on."""
    began = told = time.monotonic()

    def watch() -> None:
        nonlocal told
        check()
        if (now := time.monotonic()) - told >= _TELL_S:
            told = now
            progress(f"{what}: {now - began:.0f} s so far")

    return watch


def has_image(docker: Docker, image: str) -> bool:
    """Whether the engine has it."""
    try:
        docker.run("image", "inspect", "--format", "{{.Id}}", image)
    except ProgramFailed:
        return False
    return True


def recipe_digest() -> str:
    """Changes with whatever the image is made from: the scripts, the release, the interpreter, the machine."""
    parts = [(IMAGES / name).read_bytes() for name in ("rootfs.sh", "Dockerfile")]
    parts += [_codename().encode(), _python().encode(), platform.machine().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def build_from_debootstrap(docker: Docker, image: str, watch: Callable[[], None]) -> None:
    """Makes a root file system and imports it. Raises ImageFault, ProgramFailed, and what `watch` raises."""
    source = apt_source()
    state_folder().mkdir(parents=True, exist_ok=True)
    for folder in abandoned():
        shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(prefix=_ROOTFS, dir=state_folder()) as made:
        lock = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            script = [str(IMAGES / "rootfs.sh"), source.suite, source.mirror, source.keyring, made]
            run_watched(["sh", *script], watch, timeout_s=_BUILD_TIMEOUT_S)
            _import(docker, image, Path(made))
        finally:
            os.close(lock)


def abandoned() -> list[Path]:
    """Root file systems whose builder was killed: nobody holds the lock on their folder."""
    found = []
    for folder in sorted(state_folder().glob(f"{_ROOTFS}*")):
        with suppress(FileNotFoundError, NotADirectoryError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(folder)
            except BlockingIOError:
                pass
            finally:
                os.close(lock)
    return found


def build_from_dockerfile(docker: Docker, image: str, base: str, watch: Callable[[], None]) -> None:
    """`docker build` of emulators/images, with BuildKit or without (fault G10). Raises as `build_from_debootstrap`."""
    words = [*docker.command, "build", "--tag", image, "--build-arg", f"BASE={base}", str(IMAGES)]
    run_watched(words, watch, timeout_s=_BUILD_TIMEOUT_S)


def validate(docker: Docker, image: str) -> None:
    """Runs the image once as a node will be run, and imports what a node imports. Raises ImageFault.

    An image that has passed with these libraries is not tried again: its id is a digest of its content.
    """
    identity = docker.run("image", "inspect", "--format", "{{.Id}}", image).strip()
    words = "\0".join([identity, *site_packages(), _python()])
    passed = state_folder() / "images" / hashlib.sha256(words.encode()).hexdigest()[:16]
    if passed.exists():
        return
    mounts = [Mount(Path(path)) for path in site_packages()]
    options = [word for mount in mounts for word in ("--volume", f"{mount.path}:{mount.path}:ro")]
    options += [word for key, value in python_environment().items() for word in ("--env", f"{key}={value}")]
    base = ["run", "--rm", "--network", "none", "--cap-drop", "ALL", "--read-only", *options, "--entrypoint"]
    try:
        docker.run(*base, "sleep", image, "0")
        found = docker.run(*base, "python3", image, "-c", _PROBE).strip()
    except ProgramFailed as fault:
        raise ImageFault(f"image {image} cannot run a node: {fault.output or fault.status}") from fault
    if found != _python():
        raise ImageFault(f"image {image} has Python {found}, the libraries of this host are built for {_python()}")
    passed.parent.mkdir(parents=True, exist_ok=True)
    passed.write_text(image + "\n")


def apt_source() -> AptSource:
    """The first apt source of the host's own release that has `main`. Raises ImageFault."""
    codename = _codename()
    folder = Path("/etc/apt")
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        read = _stanzas if path.suffix == ".sources" else _lines
        for fields in read(path.read_text(errors="replace")):
            if codename in fields["suites"].split() and "main" in fields["components"].split():
                return AptSource(codename, fields["uris"].split()[0], fields.get("signed-by", ""))
    raise ImageFault(f"no apt source for {codename or 'this system'} in {folder}; set LOOPLANE_IMAGE_FROM=dockerfile")


def _import(docker: Docker, image: str, folder: Path) -> None:
    words = [*docker.command, "import", "--change", 'CMD ["python3"]', "-", image]
    with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as tar:
        done = subprocess.run(words, stdin=tar.stdout, capture_output=True, text=True, timeout=300, check=False)
    if tar.returncode != 0 or done.returncode != 0:
        raise ProgramFailed(words, f"ended with {done.returncode} (tar with {tar.returncode})", done.stderr)


def _stanzas(text: str) -> list[dict[str, str]]:
    """deb822: `Key: value` lines, stanzas apart by empty lines (sources.list(5))."""
    found = []
    for stanza in text.split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        keyring = fields.get("signed-by", "")
        if not keyring.startswith("/"):  # a key in the file itself is none that debootstrap could read
            fields.pop("signed-by", None)
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false")
        if enabled and "deb" in fields.get("types", "").split() and {"uris", "suites", "components"} <= set(fields):
            found.append(fields)
    return found


def _lines(text: str) -> list[dict[str, str]]:
    """One-line style: `deb [options] URI suite component…`."""
    found = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if len(words) < 4 or words[0] != "deb":
            continue
        options: dict[str, str] = {}
        if words[1].startswith("["):
            end = next((place for place, word in enumerate(words) if word.endswith("]")), None)
            if end is None or len(words) < end + 4:
                continue
            inside = " ".join(words[1 : end + 1]).strip("[] ")
            options = dict(word.split("=", 1) for word in inside.split() if "=" in word)
            words = [words[0], *words[end + 1 :]]
        fields = {"uris": words[1], "suites": words[2], "components": " ".join(words[3:])}
        if options.get("signed-by", "").startswith("/"):
            fields["signed-by"] = options["signed-by"]
        found.append(fields)
    return found


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return ""


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
