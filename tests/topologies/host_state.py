"""What a run may not change about the host, as text lines that can be compared."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

_SYSCTLS = ("net/core", "net/bridge", "net/ipv4/conf/all", "net/ipv4/neigh", "net/ipv6/conf/all")
_SINGLE_SYSCTLS = ("net/ipv4/ip_forward", "fs/file-max", "kernel/pty/max", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem")
_DOCKER_SOCKETS = ("/var/run/docker.sock", "/run/looplane/docker.sock")


def snapshot() -> set[str]:
    """One line for each link, namespace, container, mount, shared-memory file, firewall rule and sysctl."""
    lines = {f"link {line.split(': ')[1]}" for line in _output("ip", "-o", "link").splitlines()}
    lines |= {f"netns {line.split()[0]}" for line in _output("ip", "netns", "list").splitlines()}
    lines |= {f"shm {name}" for name in os.listdir("/dev/shm")}
    for program in ("iptables-save", "ip6tables-save"):
        lines |= {f"{program} {line}" for line in _output(program).splitlines() if line[:1] not in "#:"}
    lines |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    lines |= _sysctls()
    lines |= _containers()
    return lines


def differences(before: set[str], label: str, patience_s: float = 3.0) -> list[str]:
    """Lines that came (+) or went (-), and processes and folders of `label`. Waits for the kernel's own clean-up."""
    end = time.monotonic() + patience_s
    while True:
        after = snapshot()
        found = [f"+ {line}" for line in sorted(after - before)] + [f"- {line}" for line in sorted(before - after)]
        found = [line for line in found if not _of_another_run(line, label)]
        found += [f"+ {line}" for line in sorted(of_label(label))]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def _of_another_run(line: str, label: str) -> bool:
    """Other runs may come and go beside a test: what carries their label, and the engine that they share with us."""
    labels = re.findall(r"looplane[-/]([0-9a-f]{6})\b|\bl([0-9a-f]{6})[pb]\d", line)
    if labels:
        return label not in {part for pair in labels for part in pair}
    return line[2:7] == "mount" and "/docker" in line and (line[0] == "-" or Path("/run/looplane/docker.json").exists())


def of_label(label: str) -> set[str]:
    """Processes, control groups, folders and containers that carry a run's label."""
    lines = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if label.encode() in text:
                lines.add(f"process {folder.name} {(text.split(bytes(1))[0]).decode()}")
    for top in ("/run", "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"):
        if Path(top, "looplane", label).exists():
            lines.add(f"folder {top}/looplane/{label}")
    return lines | {line for line in _containers() if label in line}


def _containers() -> set[str]:
    lines = set()
    for socket in _DOCKER_SOCKETS:
        if Path(socket).exists():
            text = _output("docker", "-H", f"unix://{socket}", "ps", "--all", "--format", "{{.Names}}")
            lines |= {f"container {line}" for line in text.splitlines()}
    return lines


def _sysctls() -> set[str]:
    lines = set()
    paths = [Path("/proc/sys", name) for name in _SINGLE_SYSCTLS]
    for branch in _SYSCTLS:
        paths += Path("/proc/sys", branch).rglob("*")
    for path in paths:
        try:
            if path.is_file():
                lines.add(f"sysctl {path} {path.read_text().strip()}")
        except OSError:
            continue
    return lines


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20).stdout
    except FileNotFoundError:
        return ""
