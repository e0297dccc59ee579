"""What this host can emulate: each ability is probed by doing it in a namespace that is gone afterwards, not guessed.

A missing ability is named before a run, with what it means and what would mend it (architecture §1, platform.md §A,
faults C2, D1, D9, G7). Nothing of the host is changed; probing a queueing discipline may make the kernel load its
module, as using it would.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from testbed.command.places import state_folder
from testbed.network.wire_profile import modelled
from topologies import cells, docker_host, offers, tenancy
from topologies.processes import fifo_allowed

Level = Literal["ok", "note", "warning", "missing"]
GIB = 1 << 30
_PROBE_TIMEOUT_S = 20


class Finding(msgspec.Struct, frozen=True):
    """One ability of the host."""

    name: str
    level: Level
    """`missing` where no run on Mininet is possible without it, `warning` where runs are degraded, `note` where
    something is absent that we do without.
    """
    detail: str
    """What was found, and what follows from it."""
    remedy: str = ""
    """A command, or a piece of advice, that would make it ok; empty when it is, or when nothing would."""


QDISCS: dict[str, tuple[str, bool, str]] = {
    "htb": ("r2q 10", True, "virtual lanes are HTB classes"),
    "pfifo": ("limit 10", True, "lanes queue in pfifo"),
    "tbf": ("rate 1mbit burst 5000 latency 10ms", False, "plain rate limits"),
    "netem": ("delay 1ms", False, "delay and loss by the kernel; runs use neither"),
    "prio": ("bands 3", False, "strict priorities in the kernel; lanes do not need it"),
    "ets": ("bands 3", False, "enhanced transmission selection; lanes do not need it"),
    "fq": ("", False, "paced sending; the soft RNIC paces by itself"),
    "fq_codel": ("", False, "fair queueing; not used by lanes"),
    "ingress": ("", False, "policing of what comes in"),
}
"""Queueing disciplines: options with which to try them, whether a run needs them, what they are for."""


def probe_all() -> list[Finding]:
    """Every ability, in the order in which people read it."""
    findings = [_root(), *map(_program, PROGRAMS), _mininet()]
    if os.geteuid() == 0:
        findings += [*_network(), _fifo(), *_docker()]
    findings += [_cpus(), _cgroups(), _waits(), _memory_lock(), _shared_memory(), _disk()]
    findings.append(_bridge_firewall())
    return findings + [Finding(offer.name, "note" if offer.remedy else "ok", offer.detail, offer.remedy)
                       for offer in (*tenancy.tenancy(), *offers.offers())]  # fmt: skip


def lacking(findings: Iterable[Finding]) -> list[Finding]:
    """What a run on Mininet cannot do without and this host has not."""
    return [finding for finding in findings if finding.level == "missing"]


def lacking_for_a_run() -> list[Finding]:
    """As `lacking`, but only the cheap probes and those that decide."""
    findings = [_root(), *map(_program, PROGRAMS), _mininet()]
    if not lacking(findings):
        findings += _network()
    return lacking(findings)


def docker_usable() -> bool:
    """Whether nodes can be containers here."""
    return docker_host.engine_that_answers() is not None or docker_host.startable()


def lines(findings: Iterable[Finding]) -> list[str]:
    """The findings for a terminal."""
    marks = {"ok": "ok     ", "note": "note   ", "warning": "warning", "missing": "MISSING"}
    text = []
    for finding in findings:
        text.append(f"{marks[finding.level]} {finding.name}: {finding.detail}")
        if finding.remedy:
            text.append(f"        to mend: {finding.remedy}")
    return text


# --- programs and libraries ---------------------------------------------------------------------------------------

PROGRAMS: tuple[tuple[str, str, bool, str], ...] = (
    ("ip", "iproute2", True, "links and addresses"),
    ("tc", "iproute2", True, "lanes"),
    ("bridge", "iproute2", True, "switches"),
    ("ethtool", "ethtool", True, "packet order on virtual links"),
    ("mnexec", "mininet", True, "Mininet's namespaces"),
    ("tshark", "tshark", False, "decoding captures; capturing needs nothing"),
    ("debootstrap", "debootstrap", False, "building the containers' image where no registry is reached"),
    ("nsenter", "util-linux", False, "looking into a live run by hand"),
)
"""Program, Debian package, whether a run needs it, what for."""


def _program(row: tuple[str, str, bool, str]) -> Finding:
    name, package, needed, purpose = row
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path:
        return Finding(name, "ok", f"{path}, for {purpose}")
    return Finding(name, "missing" if needed else "note", f"not installed: {purpose}", f"apt-get install {package}")


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root", "ok", "may make namespaces and containers")
    return Finding("root", "missing", "only the simulated clock can be used", "run as root")


def _mininet() -> Finding:
    name = "mininet (Python)"
    if importlib.util.find_spec("mininet") is None:
        where = f"not importable from {sys.executable}"
        return Finding(name, "missing", where, f"{sys.executable} -m pip install mininet==2.3.0.dev6")
    return Finding(name, "ok", f"importable from {sys.executable}")


# --- the kernel's network, tried in a namespace of its own ----------------------------------------------------------


def _network() -> list[Finding]:
    script = [
        'try() { name=$1; shift; if out=$("$@" 2>&1); then echo "$name|ok|"; else echo "$name|no|$(echo $out)"; fi; }',
        "try veth ip link add try0 type veth peer name try1",
        "try bridge ip link add try2 type bridge",
    ]
    for name, (options, _, _) in QDISCS.items():
        place = "ingress" if name == "ingress" else f"root handle 9: {name} {options}"
        script += [f"try {name} tc qdisc add dev try0 {place}", f"tc qdisc del dev try0 {place.split()[0]} 2>/dev/null"]
    script += [
        "tc qdisc add dev try0 root handle 1: htb default 10 r2q 1 2>/dev/null",
        "try u32 tc filter add dev try0 parent 1: protocol ip prio 1 u32 match ip tos 0x10 0xfc flowid 1:10",
    ]
    said = _in_new_network("\n".join(script))
    if said is None:
        meaning = "no network namespace can be made"
        allowed = Path("/proc/self/ns/net").exists()
        remedy = (
            "this process may not make one: be root of the host, or give the container CAP_SYS_ADMIN and CAP_NET_ADMIN"
            if allowed
            else "use a kernel with CONFIG_NET_NS"
        )
        return [Finding("network namespaces", "missing", meaning, remedy)]
    answers = [line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2]
    results = {name: (answer == "ok", words) for name, answer, words in answers}
    findings = [Finding("network namespaces", "ok", "can be made")]
    purposes = {
        "veth": (True, "links"), "bridge": (True, "switches"), "u32": (True, "service levels to lanes, by DSCP"),
        **{name: (needed, purpose) for name, (_, needed, purpose) in QDISCS.items()},
    }  # fmt: skip
    for name, (needed, purpose) in purposes.items():
        works, words = results.get(name, (False, "not tried"))
        kind = "qdisc " if name in QDISCS else "kernel "
        if works:
            findings.append(Finding(kind + name, "ok", purpose))
        else:
            meaning = f"{purpose}; the kernel says: {words}"
            findings.append(Finding(kind + name, "missing" if needed else "note", meaning, _mend_kernel(name)))
    return findings


def _mend_kernel(name: str) -> str:
    option = {"veth": "VETH", "bridge": "BRIDGE", "u32": "NET_CLS_U32"}.get(name, f"NET_SCH_{name.upper()}")
    module = {"veth": "veth", "bridge": "bridge", "u32": "cls_u32"}.get(name, f"sch_{name}")
    kernel = f"a kernel with CONFIG_{option}"
    return f"modprobe {module}, or {kernel}" if Path("/lib/modules", os.uname().release).is_dir() else f"use {kernel}"


def _in_new_network(script: str) -> str | None:
    try:
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", script],
            capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if "|" in done.stdout else None


# --- processors, memory, engine ---------------------------------------------------------------------------------------


def _fifo() -> Finding:
    if fifo_allowed():
        return Finding("SCHED_FIFO", "ok", "soft RNICs are not slowed by the host's load")
    meaning = "refused: soft RNICs compete for the CPU, latencies under load are not faithful"
    return Finding("SCHED_FIFO", "warning", meaning, "give this control group real-time runtime (cpu.rt_runtime_us)")


def _docker() -> list[Finding]:
    docker = docker_host.engine_that_answers()
    if docker is not None:
        version = docker.run("version", "--format", "{{.Server.Version}}").strip()
        return [Finding("docker", "ok", f"engine {version} answers: nodes are containers")]
    if docker_host.startable():
        return [Finding("docker", "ok", "no engine answers; dockerd is there and is started for a run, and stopped")]
    meaning = "no engine: nodes are plain namespaces, without memory limits"
    return [Finding("docker", "warning", meaning, "apt-get install docker.io")]


def _cpus() -> Finding:
    count = len(os.sched_getaffinity(0))
    if count == 1:
        meaning = "1 core: host and hardware share it, so interference cannot be told apart"
        return Finding("cpus", "warning", meaning, "use a machine with two cores or more")
    budget = modelled(count).packets_per_s
    return Finding("cpus", "ok", f"{count} cores: about {budget} packets/s through the lanes' arbitration")


def _cgroups() -> Finding:
    found = cells.version()
    where = cells.hierarchy()
    if where is None:
        meaning = f"cgroup {found}, none writable: processes of namespace nodes are not grouped"
        return Finding("cgroups", "warning", meaning, "mount cgroup2 at /sys/fs/cgroup")
    return Finding("cgroups", "ok", f"cgroup {found}; groups of runs under {where}")


def _waits() -> Finding:
    try:
        Path("/proc/self/schedstat").read_text()
    except OSError:
        meaning = "this kernel does not say how long a process waited for a CPU: the verdict cannot judge it"
        return Finding("schedstat", "warning", meaning, "use a kernel with CONFIG_SCHED_INFO")
    return Finding("schedstat", "ok", "waits for a CPU are part of the fidelity verdict")


def _memory_lock() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Finding("ulimit -l", "ok", "unlimited: any memory region can be registered with a real RNIC")
    kib = limit // 1024
    meaning = f"{kib} KiB may be locked: a real RNIC could not register more; the soft RNIC does not mind"
    return Finding("ulimit -l", "warning", meaning, "ulimit -l unlimited")


def _shared_memory() -> Finding:
    return _space("/dev/shm", Path("/dev/shm"), GIB // 4, "hardly used: regions are memfds")


def _disk() -> Finding:
    folder = state_folder()
    while not folder.exists():
        folder = folder.parent
    return _space(f"disk at {folder}", folder, 2 * GIB, "runs and the containers' image")


def _space(name: str, folder: Path, wanted: int, purpose: str) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as fault:
        return Finding(name, "warning", f"{fault.strerror}; {purpose}")
    text = f"{free / GIB:.1f} GiB free; {purpose}"
    if free < wanted:
        return Finding(name, "warning", text, f"free at least {wanted / GIB:g} GiB")
    return Finding(name, "ok", text)


def _bridge_firewall() -> Finding:
    path = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    name = "bridge-nf-call-iptables"
    if not path.exists() or path.read_text().strip() == "0":
        return Finding(name, "ok", "bridged frames pass no firewall")
    return Finding(name, "ok", "1 on this host; runs switch it off inside their own namespaces only")
