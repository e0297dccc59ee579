"""pyverbs is looked for where Debian puts it, and what is missing is said in one line with its remedy."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

import pytest

from emulators.rdma_device import RdmaDevice, RnicUnfit
from emulators.rdma_library import LibraryMissing, load
from testbed.experiment.hardware import RealRnic
from testbed.network.connection import ConnectionSettings


@pytest.fixture
def no_pyverbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an interpreter that has not imported it yet."""
    for name in [name for name in sys.modules if name.split(".")[0] == "pyverbs"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("no_pyverbs")
def test_without_it_the_package_is_named(tmp_path: Path) -> None:
    if importlib.machinery.PathFinder.find_spec("pyverbs") is not None:
        pytest.skip("pyverbs is on this interpreter's own path")
    with pytest.raises(LibraryMissing, match=r"it is not installed \(apt-get install python3-pyverbs\)$"):
        load([str(tmp_path)])


@pytest.mark.usefixtures("no_pyverbs")
def test_one_that_is_built_for_another_python_is_named(tmp_path: Path) -> None:
    if importlib.machinery.PathFinder.find_spec("pyverbs") is not None:
        pytest.skip("pyverbs is on this interpreter's own path")
    package = tmp_path / "pyverbs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "device.cpython-27-x86_64-linux-gnu.so").touch()
    with pytest.raises(LibraryMissing, match=r"built for another Python \(device\.cpython-27.*/usr/bin/python3"):
        load([str(tmp_path)])
    assert "pyverbs" not in sys.modules


def test_a_device_that_is_not_there_is_named_at_once() -> None:
    try:
        library = load()
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    rnic = RealRnic("nosuch_0", 3)
    with pytest.raises(RnicUnfit, match=r"^RDMA device nosuch_0, port 1, GID index 3: Failed to "):
        RdmaDevice(library, rnic, ConnectionSettings())
