"""What the console may use of a bench's real parts: what root has listed, and no program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.experiment.hardware import DeviceAccelerator, Hardware, LentInterface, RealRnic, StorageMount
from topologies.allowed_hardware import ASKED_BY_VARIABLE, LIST, BadList, forbidden, read_list

CONSOLE = {ASKED_BY_VARIABLE: "console"}
HARDWARE = Hardware(
    ports={"gpu0.cnic0": LentInterface("enp1s0f0")},
    rnics={"dpu0": RealRnic("mlx5_0", 3)},
    accelerators={"gpu0": DeviceAccelerator(socket="/run/device.sock")},
    storage={"storage0": StorageMount("/mnt/nvme")},
)
pytestmark = pytest.mark.root


def test_root_may_use_everything_and_the_console_nothing(tmp_path: Path) -> None:
    assert forbidden(HARDWARE, {}) == []
    lines = forbidden(HARDWARE, CONSOLE, tmp_path / "none.toml")
    assert len(lines) == 4
    assert lines[0] == (
        f'hardware.ports."gpu0.cnic0": "enp1s0f0": not in {tmp_path}/none.toml, which lists what the console may use '
        "on this bench"
    )
    assert forbidden(Hardware(), CONSOLE) == []


def test_what_is_listed_is_allowed_and_nothing_near_it(tmp_path: Path) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text(
        'interfaces = ["enp1s0f0"]\nrnics = ["mlx5_0"]\nsockets = ["/run/device.sock"]\nstorage = ["/mnt/nvme"]\n'
    )
    assert forbidden(HARDWARE, CONSOLE, path) == []
    near = Hardware(
        storage={"storage0": StorageMount("/mnt/nvme/../../etc")}, uplinks={"compute": LentInterface("enp1s0f")}
    )
    assert len(forbidden(near, CONSOLE, path)) == 2


def test_programs_and_force_are_never_the_consoles(tmp_path: Path) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text('interfaces = ["enp1s0f0"]')
    asked = Hardware(
        ports={"gpu0.cnic0": LentInterface("enp1s0f0", force=True)},
        accelerators={"gpu0": DeviceAccelerator(command=("sh", "-c", "true"))},
    )
    assert forbidden(asked, CONSOLE, path) == [
        "hardware.accelerators.gpu0.command: only root of the bench may start programs: looplane run",
        'hardware.ports."gpu0.cnic0".force: only root of the bench may take an interface that is in use: looplane run',
    ]


@pytest.mark.parametrize("text", ["interfaces = 5", "intrefaces = []", "= broken"])
def test_a_list_that_cannot_be_read_allows_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    with pytest.raises(BadList, match=r"hardware\.toml: "):
        forbidden(HARDWARE, CONSOLE, path)


@pytest.mark.parametrize("fault", ["mode", "owner"])
def test_a_list_that_others_can_write_is_not_trusted(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text("")
    if fault == "mode":
        path.chmod(0o664)
    else:
        os.chown(path, 1, 1)
    with pytest.raises(BadList, match="must belong to root and be writable by nobody else"):
        read_list(path)


def test_runnerd_says_who_asks() -> None:
    """The daemon may import nothing but the standard library, so the variable's name is written there again."""
    source = (Path(__file__).parents[2] / "topologies" / "runnerd.py").read_text()
    assert f'"{ASKED_BY_VARIABLE}": "console"' in source
    assert LIST.is_absolute()
