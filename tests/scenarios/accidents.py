"""Runs that meet with accidents: what is killed and how it is found, the strangers beside it, and what may be left."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from testbed.events.log import read_log
from topologies.naming import RUN_ROOT
from topologies.registry import RunRegistry

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "topologies"))  # its module of what a host consists of

import host_state

TOP = Path(__file__).resolve().parents[2]
EXPERIMENTS = TOP / "fixtures" / "experiments"
ENDS_WITHIN_S = 45.0
"""From the kill to the end of the run and its tear-down; mostly patience with containers."""


class Experiment(NamedTuple):
    """What the killed run runs: a shipped experiment, made long enough to be killed in its middle."""

    file: str
    settings: tuple[str, ...]


BLINK = Experiment(
    "blink/small.toml",
    ('captures=[{node="gpu0", interface="cnic0", limit_mib=8}]', "workload.requests=4000"),
)
SMALL = EXPERIMENTS / BLINK.file
DUALPATH = Experiment("dualpath/small.toml", ("dilation=60",))
HOST_DRIVEN = Experiment("blink/host-driven-small.toml", ("workload.requests=400",))


class Kind(NamedTuple):
    """A kind of process that can be killed."""

    name: str
    what: str
    """How the registry's record of it begins; `bench` and `conductor` are found otherwise."""
    said: str
    """What the run's detail then says, as a regular expression."""
    nodes: str = "namespace"
    verb: str = "run"
    alike: str = ""
    """Kinds of one word here die alike: without `--soak` one of them, by the seed, stands for all."""
    experiment: Experiment = BLINK


NODE_DIED = r"node {0}\b.*(was killed by SIGKILL|ended with 137)"
KINDS = [
    Kind("bench", "bench", r"the bench was killed by SIGKILL", alike="bench"),
    Kind("serving-bench", "bench", r"the bench was killed by SIGKILL", verb="serve", alike="bench"),
    Kind("conductor", "conductor", r"cancelled, since the process that started it has ended"),
    *(
        Kind(f"node-{name}", f"node {name}", NODE_DIED.format(name), alike="node")
        for name in ("client0", "dpu0", "gpu0", "host0")
    ),
    *(
        Kind(f"dualpath-{name}", f"node {name}", NODE_DIED.format(name), alike="node", experiment=DUALPATH)
        for name in ("pe0", "de0", "sched0", "storage0")
    ),
    *(
        Kind(f"host-driven-{name}", f"node {name}", NODE_DIED.format(name), alike="node", experiment=HOST_DRIVEN)
        for name in ("host0", "gpu0")
    ),
    Kind("nic", "nic gpu0", r"nic gpu0 was killed by SIGKILL", alike="helper"),
    Kind("capture", "capture gpu0.cnic0", r"capture gpu0\.cnic0 was killed by SIGKILL", alike="helper"),
    Kind("relay", "relay", r"relay was killed by SIGKILL", verb="serve", alike="helper"),
    Kind("node-shell", "network dpu0", r"network dpu0: the shell .* was killed by SIGKILL", alike="shell"),
    Kind("switch-shell", "switch compute", r"switch compute: the shell .* was killed by SIGKILL", alike="shell"),
    Kind("container", "container gpu0", r"(container looplane-\S+-gpu0 has ended with 137|node gpu0 .*137)", "docker"),
]


class LiveRun:
    """`looplane run` (or `serve`) of the kind's experiment on Mininet, as a process of its own."""

    def __init__(self, parent: Path, kind: Kind, *words: str) -> None:
        self.kind = kind
        self.parent = parent / secrets.token_hex(4)
        self.parent.mkdir()
        self.said = self.parent / "said.txt"
        file = EXPERIMENTS / kind.experiment.file
        settings = (f'nodes="{kind.nodes}"', *kind.experiment.settings)
        command = [
            sys.executable, "-m", "testbed.command", kind.verb, str(file), "--on", "mininet", "--json",
            "--out", str(self.parent / "runs"), *(word for each in settings for word in ("--set", each)), *words,
        ]  # fmt: skip
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)},
                                            stdout=subprocess.PIPE, stderr=said, start_new_session=True)  # fmt: skip

    @property
    def folder(self) -> Path:
        """The run folder, once it is there."""
        return self._wait("its run folder", lambda: next(iter((self.parent / "runs").glob("2*")), None))

    @property
    def label(self) -> str:
        """The run's label."""
        return self.folder.name.rpartition("-")[2]

    def victim(self) -> int:
        """The process to be killed, as soon as it has started."""
        if self.kind.what == "conductor":
            self._wait("its record", lambda: RunRegistry(self.label).record())
            return self.process.pid
        return self._wait(self.kind.what, self._find)

    def _find(self) -> int | None:
        registry = RunRegistry(self.label)
        record = registry.record()
        if record is None:
            return None
        if self.kind.what == "bench":
            return record.owner.pid
        if self.kind.nodes == "docker":
            return self._container()
        marks = [mark for mark in registry.processes() if mark.what == self.kind.what]
        return marks[-1].pid if marks else None

    def _container(self) -> int | None:
        name = f"looplane-{self.label}-{self.kind.what.split()[1]}"
        for socket in (None, RUN_ROOT / "docker.sock"):
            at = [] if socket is None else ["-H", f"unix://{socket}"]
            words = ["docker", *at, "inspect", "--format", "{{.State.Pid}}", name]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
            if done.returncode == 0 and int(done.stdout) > 0:
                return int(done.stdout)
        return None

    def end(self) -> dict[str, object]:
        """What it printed at its end, within `ENDS_WITHIN_S`; empty if it was killed itself."""
        out, _ = self.process.communicate(timeout=ENDS_WITHIN_S)
        lines = [line for line in out.decode().splitlines() if not line.startswith('{"base_url"')]
        told: dict[str, object] = json.loads("\n".join(lines)) if lines else {}
        return told

    def summary(self) -> dict[str, object]:
        """The run's result as anybody finds it later."""
        words = [sys.executable, "-m", "testbed.command", "report", str(self.folder), "--json"]
        done = subprocess.run(words, cwd=TOP, capture_output=True, check=False, timeout=60)
        assert done.returncode in (0, 1, 4), done.stderr.decode()
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def events(self) -> int:
        """How many whole events the bench has left."""
        return sum(1 for _ in read_log(self.folder / "events" / "bench.jsonl"))

    def close(self) -> None:
        """Ends it, if a test has failed half way."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.communicate(timeout=ENDS_WITHIN_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def _wait(self, what: str, look):  # type: ignore[no-untyped-def]  # whatever `look` finds
        end = time.monotonic() + 90
        while (found := look()) is None:
            assert self.process.poll() is None, f"no {what}: {self.said.read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < end, f"no {what} after 90 s"
            time.sleep(0.005)
        return found


class Strangers:
    """Things with names like ours that are nobody's business (faults A1, A2)."""

    LINKS = ("keepme", "foo-eth0", "foo-eth1")

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="keep-", suffix=".log", dir="/tmp")
        os.close(handle)
        self.file = Path(name)
        subprocess.run(["ip", "link", "add", "keepme", "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "add", "foo-eth0", "type", "veth", "peer", "name", "foo-eth1"], check=True)
        self.ping = subprocess.Popen(["bash", "-c", "exec -a ping sleep 3600"])
        self._links = self._indices()
        assert len(self._links) == len(self.LINKS)

    def _indices(self) -> dict[str, str]:
        said = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^(\d+): ([\w-]+)", said, re.MULTILINE)
        return {name: index for index, name in found if name in self.LINKS}

    def check(self) -> None:
        """Every one of them is what it was."""
        assert self._indices() == self._links
        assert self.ping.poll() is None
        assert self.file.is_file()

    def remove(self) -> None:
        """Takes them away again."""
        for link in ("keepme", "foo-eth0"):
            subprocess.run(["ip", "link", "del", link], check=False, stderr=subprocess.DEVNULL)
        self.ping.kill()
        self.ping.wait()
        self.file.unlink(missing_ok=True)


@contextmanager
def strangers() -> Iterator[Strangers]:
    """Strangers for the length of the block."""
    made = Strangers()
    try:
        yield made
    finally:
        made.remove()


def clean(*words: str) -> list[str]:
    """What `looplane clean` says; it must succeed."""
    command = [sys.executable, "-m", "testbed.command", "clean", *words]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def leftovers(before: set[str], label: str) -> list[str]:
    """What is left of a run on the host, or was changed by it, once the kernel has had its time."""
    return host_state.differences(before, label, patience_s=20)
