"""The verdict is right: no starved or meddled-with run is `faithful`, and undisturbed ones are (C17, B8, B9, B11)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import starvation
from whole_run import BenchProcess

from testbed.events.ordering import merge
from testbed.experiment.plan import read_plan
from testbed.metrics.fidelity import Fidelity, FidelityFold
from testbed.metrics.fold import Folding
from topologies.naming import Names
from topologies.registry import RunRegistry

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.root
LONGER = ("workload.requests=12", "workload.lengths.output_low=16", "workload.lengths.output_high=32")
FEW = 6
"""Runs of which one is faithful on any machine that the tests have to themselves."""


def judged(folder: Path) -> Fidelity:
    found: Fidelity = Folding({"f": FidelityFold()}).take_all(merge(folder / "events")).result("f")
    return found


@contextmanager
def demoted(pids: list[int], each: int) -> Iterator[None]:
    starvation.refuse_fifo(pids)
    with starvation.hogs(0, 1000, 0, cores=2, each=each):
        yield


@contextmanager
def squeezed(folder: Path, busy_ms: float, idle_ms: float) -> Iterator[None]:
    starvation.squeeze([*starvation.rnic_pids(folder), *starvation.software_pids(folder)], starvation.hardware_core())
    with starvation.hogs(60, busy_ms, idle_ms):
        yield


def nic_of(folder: Path, node: str) -> list[int]:
    return [pid for pid in starvation.rnic_pids(folder) if node in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]


def gpu(folder: Path) -> list[int]:
    return [
        pid for pid in starvation.software_pids(folder) if "emulators.gpu" in Path(f"/proc/{pid}/cmdline").read_text()
    ]


Way = Callable[[Path], AbstractContextManager[None]]
STRESSED = "no FIFO, a hog a core"
"""Fault C17's own: the whole machine is busy, and nothing of the run goes first."""
WAYS: dict[str, Way] = {
    "FIFO hog, 10 of 20 ms": lambda folder: starvation.hogs(50, 10, 10),
    "SIGSTOP of the GPU, 30 of 100 ms": lambda folder: starvation.bursts(gpu(folder), 30, 70),
    "no FIFO, a hog a core": lambda folder: demoted(
        [*starvation.software_pids(folder), *starvation.rnic_pids(folder)], 1
    ),
    "FIFO hog, 5 of 20 ms": lambda folder: starvation.hogs(50, 5, 15),
    "FIFO hog, 20 of 60 ms": lambda folder: starvation.hogs(50, 20, 40),
    "FIFO hog, 50 of 60 ms": lambda folder: starvation.hogs(50, 50, 10),
    "FIFO hog, 3 of 5 ms": lambda folder: starvation.hogs(50, 3, 2),
    "FIFO hogs on both cores, 10 of 30 ms": lambda folder: starvation.hogs(50, 10, 20, cores=2),
    "FIFO hog below the NIC, 10 of 20 ms": lambda folder: starvation.hogs(8, 10, 10),
    "FIFO hog below the GPU, 10 of 20 ms": lambda folder: starvation.hogs(6, 10, 10),
    "FIFO hog of 90 %": lambda folder: starvation.hogs(50, 90, 10),
    "SIGSTOP of the GPU, 10 of 50 ms": lambda folder: starvation.bursts(gpu(folder), 10, 40),
    "SIGSTOP of all software, 40 of 200 ms": lambda folder: starvation.bursts(
        starvation.software_pids(folder), 40, 160
    ),
    "SIGSTOP of the GPU's NIC, 30 of 100 ms": lambda folder: starvation.bursts(nic_of(folder, "gpu0"), 30, 70),
    "SIGSTOP of the DPU's NIC, 10 of 50 ms": lambda folder: starvation.bursts(nic_of(folder, "dpu0"), 10, 40),
    "SIGSTOP of all NICs, 20 of 100 ms": lambda folder: starvation.bursts(starvation.rnic_pids(folder), 20, 80),
    "no FIFO for software, two hogs a core": lambda folder: demoted(starvation.software_pids(folder), 2),
    "no FIFO for NICs, two hogs a core": lambda folder: demoted(starvation.rnic_pids(folder), 2),
    "no FIFO at all, four hogs a core": lambda folder: demoted(
        [*starvation.software_pids(folder), *starvation.rnic_pids(folder)], 4
    ),
    "all on one core with a FIFO hog, 5 of 10 ms": lambda folder: squeezed(folder, 5, 5),
}
"""Twenty ways to starve a run; the first three are those of the default run."""


def run_beside(bench: BenchProcess, way: Way | None) -> Fidelity:
    bench.wait_for("start.json")
    if way is None:
        bench.end()
    else:
        with way(bench.folder):
            bench.end()
    assert bench.process.returncode == 0, bench.said()
    return judged(bench.folder)


@pytest.mark.soak
def test_no_starved_run_is_faithful(
    prepare_run: Callable[..., Path],
    start_bench: Callable[..., BenchProcess],
    soak: bool,
    soak_note: Callable[[str], None],
) -> None:
    """Fault C17: a run whose processes were denied the CPU is never taken for a good one, nor for a failed one."""
    wrong = []
    for name in list(WAYS)[: None if soak else 3]:
        bench = start_bench(prepare_run("small.toml", *LONGER), "--nodes", "namespace")
        found = run_beside(bench, WAYS[name])
        soak_note(f"starved ({name}): {found.verdict}: {'; '.join(found.reasons)}")
        if found.verdict == "faithful":
            wrong.append(name)
        if name == STRESSED:
            assert found.verdict == "invalid"
            assert any(reason.startswith("host busy") for reason in found.reasons), found.reasons
    assert not wrong


OTHERS = {"host-driven": "host-driven-small.toml", "DualPath": "../dualpath/small.toml"}


@pytest.mark.soak
@pytest.mark.parametrize("system", OTHERS)
def test_no_starved_run_of_another_system_is_faithful(
    prepare_run: Callable[..., Path],
    start_bench: Callable[..., BenchProcess],
    system: str,
    soak: bool,
    soak_note: Callable[[str], None],
) -> None:
    """The same for servers that work on the host, and for engines with storage; what is not starved is faithful."""
    if not soak:
        pytest.skip("Blink's runs are starved; --soak starves other systems too")
    ways: dict[str, Way | None] = {
        "undisturbed": None,
        "FIFO hog, 10 of 20 ms": lambda _folder: starvation.hogs(50, 10, 10),
        "FIFO hogs on both cores, 10 of 30 ms": lambda _folder: starvation.hogs(50, 10, 20, cores=2),
        "a hog a core": lambda _folder: starvation.hogs(0, 1000, 0, cores=2),
    }
    verdicts = {}
    for name, way in ways.items():
        found = run_beside(start_bench(prepare_run(OTHERS[system]), "--nodes", "namespace"), way)
        soak_note(f"{system}, {name}: {found.verdict}: {'; '.join(found.reasons)}")
        verdicts[name] = found.verdict
    assert verdicts.pop("undisturbed") == "faithful"
    if system == "DualPath":
        del verdicts["a hog a core"]  # SCHED_FIFO goes first: its silicon is not kept from anything
    assert "faithful" not in verdicts.values(), verdicts


@pytest.mark.soak
def test_undisturbed_runs_are_faithful(
    prepare_run: Callable[..., Path],
    start_bench: Callable[..., BenchProcess],
    soak: bool,
    soak_note: Callable[[str], None],
) -> None:
    """At least 18 of 20; shortened, the first of a few, since other work on the host may disturb some."""
    verdicts: list[str] = []
    while len(verdicts) < (20 if soak else FEW) and (soak or "faithful" not in verdicts):
        bench = start_bench(prepare_run("small.toml", *LONGER), "--nodes", "namespace")
        found = run_beside(bench, None)
        verdicts.append(found.verdict)
        shown = ", ".join(f"{each.name} {each.measured:g}" for each in found.thresholds if each.measured)
        soak_note(f"undisturbed: {found.verdict}: {'; '.join(found.reasons) or shown}")
    assert verdicts.count("faithful") >= (18 if soak else 1), verdicts


# --- meddling ---------------------------------------------------------------------------------------------------------


def process_of(folder: Path, what: str) -> int:
    label = read_plan((folder / "plan.json").read_bytes()).label
    return next(mark.pid for mark in RunRegistry(label).processes() if mark.what == what)


def inside(pid: int, *words: str) -> None:
    subprocess.run(["nsenter", "--net", "--target", str(pid), *words], check=True, capture_output=True, timeout=20)


def meddle(bench: BenchProcess, deed: Callable[[Path], None]) -> Fidelity:
    """Waits until tokens flow, does the deed, and waits for the end."""
    bench.wait_for("start.json")
    path = bench.folder / "events" / "client0.jsonl"
    end = time.monotonic() + 30
    while not (path.is_file() and b"token.received" in path.read_bytes()):
        assert time.monotonic() < end, bench.said()
        time.sleep(0.02)
    deed(bench.folder)
    bench.end()
    return judged(bench.folder)


def delete_a_lane(folder: Path) -> None:
    plan = read_plan((folder / "plan.json").read_bytes())
    device = Names(plan).switch_port("gpu0", "cnic0")
    switch = process_of(folder, "switch compute")
    inside(switch, "tc", "filter", "delete", "dev", device, "parent", "1:")
    inside(switch, "tc", "class", "delete", "dev", device, "classid", "1:13")


def drop_frames(folder: Path) -> None:
    """Ten RoCE packets a second vanish in the DPU's namespace, behind every counter of our queues."""
    inside(
        process_of(folder, "network dpu0"), "iptables", "-I", "INPUT", "-p", "udp", "--dport", "4791",
        "-m", "limit", "--limit", "10/second", "--limit-burst", "1", "-j", "DROP",
    )  # fmt: skip


def drop_and_tidy_up(folder: Path) -> None:
    """As `drop_frames`, and after a second nobody can see the rule any more."""
    drop_frames(folder)
    time.sleep(0.6)
    inside(process_of(folder, "network dpu0"), "iptables", "-F")


def forbid_ipv6(folder: Path) -> None:
    inside(process_of(folder, "network gpu0"), "ip6tables", "-P", "FORWARD", "DROP")


def firewall_bridges(folder: Path) -> None:
    inside(process_of(folder, "switch compute"), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1")


def rewire(folder: Path) -> None:
    """A link's MTU, a route and a policer that takes nothing: each would be seen in lost frames at most."""
    for words in (
        "ip link set dev cnic0 mtu 4300", "ip route add 10.99.0.0/16 dev cnic0", "tc qdisc add dev cnic0 ingress",
        "ip neigh replace 10.61.0.77 lladdr 02:00:00:00:00:77 dev cnic0 nud permanent",
    ):  # fmt: skip
        inside(process_of(folder, "network dpu0"), *words.split())


@pytest.mark.parametrize(
    ("deed", "threshold", "words"),
    [
        (rewire, "host changes", ("network of dpu0", "mtu 4300", "10.99.0.0/16", "10.61.0.77", "policers of dpu0")),
        (delete_a_lane, "host changes", "lanes gpu0.cnic0"),
        (drop_frames, "lost frames", "lost frames"),
        (drop_and_tidy_up, "lost frames", "lost frames"),
        (forbid_ipv6, "host changes", "FORWARD DROP"),
        (firewall_bridges, "host changes", "bridge-nf-call-iptables of switch compute: was 0, is 1"),
    ],
)
def test_whoever_meddles_is_found_out(
    prepare_run: Callable[..., Path],
    start_bench: Callable[..., BenchProcess],
    deed: Callable[[Path], None],
    threshold: str,
    words: str | tuple[str, ...],
) -> None:
    """Faults B8 (a firewall, named as such), B9 (IPv6 policy), B11 (Docker switches bridge netfilter on)."""
    if deed is firewall_bridges and not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        pytest.skip("this kernel has no bridge netfilter")
    found = meddle(start_bench(prepare_run("small.toml", *LONGER), "--nodes", "namespace"), deed)
    assert found.verdict != "faithful"
    assert next(each for each in found.thresholds if each.name == threshold).held is False, found.reasons
    for word in (words,) if isinstance(words, str) else words:
        assert word in " ".join(found.reasons), found.reasons
