"""A source tree whose nodes are small programs with known manners, so that the bench is tested as a process of its own.

The tree is a copy of ours with other modules under emulators/: the bench starts what it always starts. What a node does
is in plan.parameters, {"dpu0": "crash"}, or in the words of spec.toml.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.experiment.plan import Plan, write_plan

SOURCE = Path(__file__).resolve().parents[2]

NODE = '''
import http.server, json, os, pathlib, signal, socket, sys, threading, time

folder, name = pathlib.Path(sys.argv[2]), sys.argv[4]
control, plan = folder / "control", json.loads((folder / "plan.json").read_text())
manner = plan["parameters"].get(name, "")
spec = folder / "spec.toml"
if spec.exists() and "client0 is endless" in spec.read_text() and name == "client0":
    manner = "endless"
facts = {
    "pid": os.getpid(), "uid": os.getuid(), "cores": sorted(os.sched_getaffinity(0)), "environ": dict(os.environ),
    "status": pathlib.Path("/proc/self/status").read_text(), "python": sys.version_info[:2],
    "interfaces": sorted(os.listdir("/sys/class/net")), "nic": os.environ["LOOPLANE_NIC_SOCKET"],
}
try:
    (pathlib.Path(json.__file__).parent / "x").touch(); facts["root"] = "writable"
except OSError as fault:
    facts["root"] = str(fault)
try:
    pathlib.Path(__file__).with_name("x").touch(); facts["source"] = "writable"
except OSError as fault:
    facts["source"] = str(fault)
if any(queue for queue in plan["nodes"] if queue["name"] == name and name in ("dpu0", "gpu0")):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as nic:
        nic.connect(facts["nic"]); facts["nic_says"] = nic.recv(100).decode()

def write(suffix, value):
    path = control / f"{name}.{suffix}"
    path.with_suffix(".tmp").write_text(json.dumps(value)); path.with_suffix(".tmp").rename(path)

if manner == "crash early":
    print("the cause of it all", file=sys.stderr); sys.exit(7)
if manner == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "serve":
    ports = [port for node in plan["nodes"] if node["name"] == name for port in node["ports"]]
    address = next(port["address"] for port in ports if port["fabric"] == "front")
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers(); self.wfile.write(self.client_address[0].encode())
        def log_message(self, *words): pass
    server = http.server.ThreadingHTTPServer((address, 8000), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
write("facts", facts)
while manner == "shy":  # never comes to the barrier
    if (control / "stop").exists(): sys.exit(0)
    time.sleep(0.01)
write("ready", {"pid": os.getpid()})
while not (control / "start.json").exists():
    if (control / "stop").exists(): sys.exit(0)
    time.sleep(0.01)
if manner == "crash":
    print("the cause of it all", file=sys.stderr); sys.exit(7)
if manner == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if plan["parameters"].get("datagrams") and name == "dpu0":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(plan["parameters"]["datagrams"]):
        s.sendto(number.to_bytes(4, "big"), ("10.61.0.3", 9))
if name.startswith("client"):
    with (folder / "events" / f"{name}.jsonl").open("w") as log:
        for number in range(plan["parameters"].get("answers", 0)):
            words = '"type":"request.finished","name":"request-%d","tokens":1,"reason":"length"' % number
            print('{"t":1,"node":"%s","seq":%d,%s}' % (name, number, words), file=log)
    time.sleep(plan["parameters"].get("seconds", 0.3))
    if manner != "endless": write("done", {})
while not (control / "stop").exists() or manner == "deaf":
    time.sleep(0.02)
print("stopped when asked")
'''

RNIC = """
import os, signal, socket, sys
path, run, node = (sys.argv[sys.argv.index(word) + 1] for word in ("--socket", "--run", "--node"))
def take_tables(*_):  # as a soft RNIC does, and keeps them; unless it has been told to be deaf
    if f'"deaf nic": "{node}"' not in open(f"{run}/plan.json").read():
        taken = sorted(os.listdir(f"{run}/control"))
        count = sum(name.startswith(f"{node}.lanes.seen") for name in taken)
        os.rename(f"{run}/control/{node}.lanes.json", f"{run}/control/{node}.lanes.seen{count}")
signal.signal(signal.SIGHUP, take_tables)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(path); s.listen()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    c, _ = s.accept(); c.send(b"nic of " + node.encode())
"""


class BenchTree:
    """A copy of the source with small nodes, and a folder for runs."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source"
        skip = shutil.ignore_patterns("__pycache__")
        for package in ("testbed", "topologies", "fixtures"):
            shutil.copytree(SOURCE / package, self.source / package, ignore=skip)
        emulators = self.source / "emulators"
        (emulators / "images").mkdir(parents=True)
        for name in ("__init__.py", "capture.py", "images/Dockerfile", "images/rootfs.sh"):
            shutil.copy(SOURCE / "emulators" / name, emulators / name)
        for role in ("client", "dpu", "gpu", "host"):
            (emulators / f"{role}.py").write_text(NODE)
        (emulators / "rnic.py").write_text(RNIC)
        self.runs = folder / "runs"

    def make(self, plan: Plan) -> Path:
        """A run folder with this plan."""
        folder = self.runs / plan.run
        folder.mkdir(parents=True)
        (folder / "plan.json").write_bytes(write_plan(plan))
        return folder

    def start(self, *words: object, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """`python -m topologies …` on this tree."""
        return subprocess.Popen(
            [sys.executable, "-m", "topologies", *map(str, words)], cwd=self.source, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def run(self, *words: object, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Runs to the end; exit code, standard output, standard error."""
        with self.start(*words, environment=environment) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def wait_for(path: Path, process: subprocess.Popen[str] | None = None, patience_s: float = 60.0) -> None:
    """Until `path` is there. Fails if `process` ends first."""
    end = time.monotonic() + patience_s
    while not path.exists():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def finish(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Signals a process and waits; exit code and standard error."""
    process.send_signal(number)
    with process:
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def result(folder: Path) -> dict[str, Any]:
    """control/bench.json."""
    found: dict[str, Any] = json.loads((folder / "control" / "bench.json").read_text())
    return found


def facts(folder: Path, node: str) -> dict[str, Any]:
    """What a node's small program has found around itself."""
    found: dict[str, Any] = json.loads((folder / "control" / f"{node}.facts").read_text())
    return found
