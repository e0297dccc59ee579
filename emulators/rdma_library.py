"""rdma-core's Python binding, pyverbs: found and imported when a run has a real RNIC, and never before.

It is no package of PyPI: Debian and Ubuntu have it as python3-pyverbs, built for the system's own Python, whose
site-packages a virtual environment does not see. The one package is therefore taken from there, without its
neighbours, and only if it was built for this interpreter. This file opens no device.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from emulators.verbs import VerbsError

PLACES = ("/usr/lib/python3/dist-packages",)
"""Where Debian's packages of the system's Python lie (Debian Python Policy, 3.3)."""


class LibraryMissing(VerbsError):
    """pyverbs cannot be imported."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"a real RNIC needs pyverbs: {reason} ({remedy})")


class Library(NamedTuple):
    """Its modules, which have no types of their own."""

    device: Any
    pd: Any
    cq: Any
    mr: Any
    qp: Any
    wr: Any
    addr: Any
    enums: Any
    error: type[Exception]
    """Base of all that pyverbs raises."""


def load(places: Sequence[str] = PLACES) -> Library:
    """pyverbs, from this interpreter's path or else from `places`. Raises `LibraryMissing`."""
    if "pyverbs" not in sys.modules and importlib.machinery.PathFinder.find_spec("pyverbs") is None:
        _take_from(places)
    names = ("device", "pd", "cq", "mr", "qp", "wr", "addr", "enums")
    try:
        modules: list[Any] = [importlib.import_module(f"pyverbs.{name}") for name in names]
        modules.append(importlib.import_module("pyverbs.pyverbs_error").PyverbsError)
    except ImportError as fault:
        sys.modules.pop("pyverbs", None)
        raise LibraryMissing(f"it cannot be imported: {fault}", "apt-get install rdma-core libibverbs1") from fault
    return Library(*modules)


def _take_from(places: Sequence[str]) -> None:
    spec = importlib.machinery.PathFinder.find_spec("pyverbs", list(places))
    if spec is None or spec.loader is None or spec.origin is None:
        raise LibraryMissing("it is not installed", "apt-get install python3-pyverbs")
    built = sorted(path.name for path in Path(spec.origin).parent.glob("device.*.so"))
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if not any(name == f"device{suffix}" for name in built for suffix in suffixes):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        reason = f"{spec.origin} is built for another Python ({', '.join(built) or 'nothing'}), this is {version}"
        raise LibraryMissing(reason, "install Looplane with the system's Python: /usr/bin/python3 -m venv")
    package: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["pyverbs"] = package
    spec.loader.exec_module(package)
