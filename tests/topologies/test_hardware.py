"""Real ports: a foreign veth stands for a network card, a namespace behind it for the world outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from outside import Outside

from testbed.experiment.hardware import Hardware, LentInterface
from testbed.experiment.plan import Plan
from tests.topologies.registered import registered
from topologies import hardware, lane_queues, lanes, reaper
from topologies.fabric import Fabric, NetworkFault
from topologies.hardware import HardwareFault, Lending
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.probe import probe
from topologies.programs import run
from topologies.registry import RunRegistry

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


@pytest.fixture
def outside(label: str) -> Iterator[Outside]:
    made = Outside(label)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def registry(label: str, tmp_path: Path) -> Iterator[RunRegistry]:
    with registered(tmp_path, label) as found:
        yield found


def state(name: str) -> dict[str, object]:
    """All that must be as it was."""
    link = json.loads(run(["ip", "-json", "-details", "link", "show", "dev", name]))[0]
    kept = ("ifname", "address", "mtu", "gso_max_segs", "gso_max_size", "txqlen", "qdisc", "num_tx_queues")
    found = {key: link.get(key) for key in kept}
    found["up"] = "UP" in link["flags"]
    found["promiscuous"] = "PROMISC" in link["flags"]
    found["master"] = link.get("master")
    addresses = json.loads(run(["ip", "-json", "addr", "show", "dev", name]))[0]["addr_info"]
    # IPv6 makes an address of the link by itself, and makes it anew.
    kept = [entry for entry in addresses if (entry["family"], entry["scope"]) != ("inet6", "link")]
    found["addresses"] = sorted(json.dumps({k: v for k, v in entry.items() if k != "tentative"}) for entry in kept)
    found["routes"] = run(["ip", "route", "show", "table", "all", "dev", name])
    found["routes of IPv6"] = [
        line for line in run(["ip", "-6", "route", "show", "table", "all", "dev", name]).splitlines() if "2001:" in line
    ]
    found["features"] = {line for line in run(["ethtool", "-k", name]).splitlines() if "fixed" not in line}
    return found


@pytest.fixture
def build(demo_plan: Plan, registry: RunRegistry, outside: Outside) -> Iterator[Callable[..., Fabric]]:
    """Builds the demo plan with this hardware; everything is given back and torn down before the outside ends."""
    assert outside.network
    made: list[tuple[Fabric, Lending]] = []

    def make(
        ports: dict[str, LentInterface] | None = None, uplinks: dict[str, LentInterface] | None = None
    ) -> Fabric:
        plan = msgspec.structs.replace(demo_plan, hardware=Hardware(ports=ports or {}, uplinks=uplinks or {}))
        lending = Lending(registry, plan.hardware)
        fabric = Fabric(plan, Names(plan), {}, registry.note, lending)
        made.append((fabric, lending))
        fabric.build()
        return fabric

    yield make
    for fabric, lending in made:
        lending.give_back()
        fabric.tear_down()


def test_a_real_port_and_an_uplink_carry_what_emulated_links_carry(
    build: Callable[..., Fabric], outside: Outside
) -> None:
    """gpu0 hangs at the foreign switch, dpu0 at ours; full frames pass both ways, lanes stand at the uplink."""
    port, uplink = outside.card(), outside.card()
    before = {name: state(name) for name in (port, uplink)}
    fabric = build(ports={"gpu0.cnic0": LentInterface(port)}, uplinks={"compute": LentInterface(uplink)})
    assert [(engaged.seam, engaged.place, engaged.device) for engaged in fabric.engaged] == [
        ("port", "gpu0.cnic0", port), ("uplink", "compute", uplink)]  # fmt: skip
    assert "driver veth" in fabric.engaged[0].facts
    assert not any(fact.startswith("bus") for fact in fabric.engaged[0].facts), "a virtual device has no bus (D10)"
    assert probe(fabric) == 4
    shown = json.loads(fabric.execute("gpu0", ["ip", "-json", "addr", "show", "cnic0"]))[0]
    assert (shown["mtu"], shown["address"]) == (4200, before[port]["address"])
    assert [entry["local"] for entry in shown["addr_info"]] == ["10.61.0.3"]
    names = [each.name for each in fabric.switch_ports()]
    assert names == ["client0.front0", "dpu0.front0", "dpu0.cnic0", "compute.uplink"]
    leaving = fabric.uplinks()[0]
    assert len(lanes.apply(leaving, lane_queues.queues_of(leaving))) >= 2
    frames = sent(leaving.pid, leaving.device)
    assert probe(fabric) == 4
    assert sent(leaving.pid, leaving.device) > frames, "what dpu0 sends to gpu0 leaves through the uplink"


def sent(pid: int, device: str) -> int:
    with network_of(pid):
        return int(json.loads(run(["ip", "-json", "-s", "link", "show", "dev", device]))[0]["stats64"]["tx"]["packets"])


def test_everything_is_given_back_as_it_was(
    demo_plan: Plan, registry: RunRegistry, outside: Outside, label: str
) -> None:
    """Name, addresses of both families and of link scope, routes, MTU, offloads, promiscuous or not, up or down.

    Forced, since one has addresses and routes.
    """
    port, uplink = outside.card(mtu=2000), outside.card()
    run(["ip", "link", "set", port, "txqueuelen", "777", "gso_max_segs", "100", "promisc", "on", "up"])
    run(["ip", "addr", "add", "169.254.7.7/16", "scope", "link", "dev", port])
    if Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text().strip() == "0":  # else there are none to be kept
        run(["ip", "addr", "add", "2001:db8:7::1/64", "nodad", "dev", port])
        run(["ip", "addr", "add", "2001:db8:9::1/64", "dev", port])
        run(["ip", "route", "add", "2001:db8:8::/48", "via", "2001:db8:7::2", "dev", port])
    run(["ethtool", "-K", port, "gro", "off", "tso", "off"])
    run(["ip", "addr", "add", "10.99.7.1/24", "broadcast", "10.99.7.255", "label", f"{port}:a", "dev", port])
    run(["ip", "route", "add", "10.98.0.0/16", "via", "10.99.7.2", "dev", port])
    before = {name: state(name) for name in (port, uplink)}
    plan = msgspec.structs.replace(demo_plan, hardware=Hardware(
        ports={"gpu0.cnic0": LentInterface(port, force=True)}, uplinks={"compute": LentInterface(uplink)}))  # fmt: skip
    lending = Lending(registry, plan.hardware)
    fabric = Fabric(plan, Names(plan), {}, registry.note, lending)
    try:
        fabric.build()
        assert port not in run(["ip", "-o", "link"])
        for leaving in fabric.uplinks():
            lanes.apply(leaving, lane_queues.queues_of(leaving))
    finally:
        lending.give_back()
        after = {name: state(name) for name in (port, uplink)}
        fabric.tear_down()
    assert [key for name in before for key in before[name] if after[name][key] != before[name][key]] == []
    assert hardware.lent_by(registry) == []
    lending.give_back()  # once more is harmless


def test_reaper_gives_back_what_a_killed_bench_had_borrowed(outside: Outside, label: str, tmp_path: Path) -> None:
    """kill -9 of the bench and of every process in the run's namespaces: the kernel would delete a veth with them."""
    port, uplink = outside.card(), outside.card()
    run(["ip", "link", "set", port, "up"])
    before = {name: state(name) for name in (port, uplink)}
    borrower = tmp_path / "borrower.py"
    borrower.write_text(
        "import os, sys, time\nsys.path[:0] = sys.argv[4:]\nimport bench_plans, msgspec\n"
        "from testbed.experiment.hardware import Hardware, LentInterface\n"
        "from topologies.fabric import Fabric\nfrom topologies.hardware import Lending\n"
        "from topologies.naming import Names\nfrom topologies.registry import RunRecord, RunRegistry, mark_of\n"
        "label, port, uplink = sys.argv[1:4]\nregistry = RunRegistry(label)\n"
        f"registry.create(RunRecord(label, {str(tmp_path)!r}, mark_of(os.getpid(), 'bench'), 'namespace'))\n"
        "plan = msgspec.structs.replace(bench_plans.demo_plan(label), hardware=Hardware(\n"
        "    ports={'gpu0.cnic0': LentInterface(port)}, uplinks={'compute': LentInterface(uplink)}))\n"
        "fabric = Fabric(plan, Names(plan), {}, registry.note, Lending(registry, plan.hardware))\n"
        "fabric.build()\nprint('built', flush=True)\ntime.sleep(60)\n"
    )
    here = Path(__file__).parent
    words = [sys.executable, str(borrower), label, port, uplink, str(here.parents[1]), str(here)]
    registry = RunRegistry(label)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "built\n"
        busy = hardware.refusal(port, 1500)
        os.kill(process.pid, signal.SIGKILL)
    assert busy == f"is lent to run {label}"
    for mark in registry.processes():
        mark.signal(signal.SIGKILL)
    said = [str(leftover) for leftover in reaper.reap(only=label, dry_run=True).removed]
    assert set(said) >= {f"interface {name} of run {label}" for name in (port, uplink)}
    reaped = reaper.reap(only=label)
    assert reaped.failed == ()
    assert {name: state(name) for name in (port, uplink)} == before
    assert not registry.folder.exists()
    assert reaper.reap(only=label) == ((), ())


def test_a_card_that_was_pulled_out_meanwhile_is_no_obstacle(
    build: Callable[..., Fabric], outside: Outside, registry: RunRegistry
) -> None:
    """D3: the device goes under the run; there is nothing to be put back, and tear-down is clean."""
    port, uplink = outside.card(), outside.card()
    fabric = build(ports={"gpu0.cnic0": LentInterface(port)}, uplinks={"compute": LentInterface(uplink)})
    fabric.execute("gpu0", ["ip", "link", "del", "cnic0"])
    with pytest.raises(Exception, match=r"cnic0|Cannot find device"):
        fabric.verify()
    Lending(registry, fabric.plan.hardware).give_back()
    assert hardware.lent_by(registry) == []
    outside.cards.remove(port)


def test_a_cable_that_leads_nowhere_is_named(build: Callable[..., Fabric], outside: Outside) -> None:
    port, uplink = outside.card(), outside.card()
    outside.inside("ip", "link", "set", "sw0", "nomaster")
    fabric = build(ports={"gpu0.cnic0": LentInterface(port)}, uplinks={"compute": LentInterface(uplink)})
    with pytest.raises(NetworkFault, match=r"frames of 4200 bytes do not arrive"):
        probe(fabric)


REFUSED = {
    "address": (["ip addr add 10.97.0.1/24 dev {card}", "ip link set {card} up"], "has the address 10.97.0.1/24"),
    "route": (["ip link set {card} up", "ip addr add 10.97.0.1/24 dev {card}",
               "ip route add default via 10.97.0.2 dev {card} table 977"], "has the default route"),
    "queues": (["tc qdisc add dev {card} root tbf rate 1mbit burst 5000 latency 10ms"],
               "has a queueing discipline of its own (tbf)"),
    "upper": (["ip link add link {card} name {card}v type macvlan"], "carries {card}v: remove that first"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_in_use_is_refused_in_one_line(outside: Outside, case: str) -> None:
    card = outside.card()
    commands, expected = REFUSED[case]
    assert hardware.refusal(card, 1500) == ""
    for command in commands:
        run(command.format(card=card).split())
    reason = hardware.refusal(card, 1500)
    assert reason.startswith(expected.format(card=card))
    assert "\n" not in reason
    assert (hardware.refusal(card, 1500, force=True) == "") is (case in ("address", "route"))


def test_a_bridge_member_a_small_mtu_loopback_and_nothing_at_all_are_refused(outside: Outside, label: str) -> None:
    card, bridge = outside.card(), f"br{label}"
    run(["ip", "link", "add", bridge, "type", "bridge"])
    try:
        run(["ip", "link", "set", card, "master", bridge])
        assert hardware.refusal(card, 1500, force=True) == f"is a port of {bridge}: take it out first"
    finally:
        run(["ip", "link", "del", bridge])
    assert hardware.refusal("lo", 1500, force=True) == "is the loopback of this host"
    assert hardware.refusal("nosuch0", 1500).startswith("there is no such interface on this host; there are ")
    assert hardware.refusal(card, 70_000) == (
        "carries an MTU of at most 65535, the run needs 70000: choose a smaller network path_mtu")  # fmt: skip


def test_a_plan_that_cannot_be_lent_says_so_with_the_path_of_its_line(demo_plan: Plan, outside: Outside) -> None:
    ports, uplinks = {"gpu0.cnic0": LentInterface("nosuch0")}, {"compute": LentInterface(outside.card())}
    plan = msgspec.structs.replace(demo_plan, hardware=Hardware(ports=ports, uplinks=uplinks))
    (line,) = hardware.refusals(plan)
    assert line.startswith('hardware.ports."gpu0.cnic0": "nosuch0": there is no such interface')


def test_what_came_into_use_after_the_look_is_not_taken(
    build: Callable[..., Fabric], outside: Outside
) -> None:
    port, uplink = outside.card(), outside.card()
    run(["ip", "addr", "add", "10.97.0.1/24", "dev", uplink])
    before = {name: state(name) for name in (port, uplink)}
    with pytest.raises(HardwareFault, match=rf"compute: {uplink} has the address 10\.97\.0\.1/24"):
        build(ports={"gpu0.cnic0": LentInterface(port)}, uplinks={"compute": LentInterface(uplink)})
    assert state(uplink) == before[uplink]
