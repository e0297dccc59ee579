"""A plan's networks in the kernel: made, as planned, silent, and gone afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.experiment.plan import Plan
from topologies import lane_queues, lanes
from topologies.fabric import Fabric, NetworkFault
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.probe import probe
from topologies.programs import ProgramFailed, run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0)); s.settimeout(5)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: DO, never fragment
s.connect((sys.argv[2], 7007)); s.send(bytes(int(sys.argv[3])))
print(len(s.recv(65536)))
"""
ANSWER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7007)); s.settimeout(10); print("ready", flush=True)
data, peer = s.recvfrom(65536); s.sendto(data, peer)
"""


def test_a_full_size_datagram_crosses_the_compute_fabric_unfragmented(fabric: Fabric) -> None:
    with network_of(fabric.pid_of("gpu0")):
        server = subprocess.Popen([sys.executable, "-c", ANSWER, "10.61.0.3"], stdout=subprocess.PIPE, text=True)
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        size = 4200 - 28
        said = fabric.execute("dpu0", [sys.executable, "-c", ECHO, "10.61.0.2", "10.61.0.3", str(size)])
    assert said == f"{size}\n"


def test_fabrics_are_physically_separate(fabric: Fabric) -> None:
    assert fabric.switch_pid("front") != fabric.switch_pid("compute")
    with pytest.raises(ProgramFailed, match="unreachable"):
        fabric.execute("client0", ["/usr/bin/python3", "-c", ECHO, "10.60.0.1", "10.61.0.3", "10"])


def test_nothing_of_it_is_in_the_hosts_own_namespace(fabric: Fabric) -> None:
    shown = run(["ip", "-o", "link"])
    assert fabric.names.label not in shown
    assert "cnic0" not in shown


def test_ipv6_is_off_and_bridged_frames_pass_no_firewall(fabric: Fabric) -> None:
    for node in ("client0", "dpu0", "gpu0", "host0"):
        addresses = json.loads(fabric.execute(node, ["ip", "-j", "addr"]))
        assert not [entry for link in addresses for entry in link["addr_info"] if entry["family"] == "inet6"]
    for name in ("front", "compute"):
        with network_of(fabric.switch_pid(name)):
            assert "inet6" not in run(["ip", "addr"])
            assert Path("/proc/sys/net/bridge/bridge-nf-call-iptables").read_text().strip() == "0"


def test_a_link_that_is_not_as_planned_is_named(fabric: Fabric) -> None:
    fabric.execute("gpu0", ["ip", "link", "set", "cnic0", "mtu", "1500"])
    with pytest.raises(NetworkFault, match=r"gpu0\.cnic0: mtu at the node's end is 1500, planned 4200"):
        fabric.verify()


def test_a_failed_command_is_not_hidden(fabric: Fabric) -> None:
    with pytest.raises(ProgramFailed, match=r"ended with 2.*unsupported operand") as caught:
        fabric.execute("gpu0", ["sh", "-c", "echo 'unsupported operand' >&2; exit 2"])
    assert caught.value.status == "ended with 2"


@pytest.mark.parametrize("end", ["switch", "node"])
def test_a_link_that_flapped_is_as_before(fabric: Fabric, end: str) -> None:
    port = next(port for port in fabric.ports() if port.name == "gpu0.cnic0")
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    pid, device = (port.pid, port.device) if end == "switch" else (fabric.pid_of("gpu0"), "cnic0")
    with network_of(pid):
        run(["ip", "link", "set", device, "down"])
        run(["ip", "link", "set", device, "up"])
    fabric.verify()
    lanes.check(port, queues)
    assert probe(fabric) == 4


def test_the_probe_names_the_way_that_is_broken(fabric: Fabric) -> None:
    assert probe(fabric) == 4
    port = next(port for port in fabric.ports() if port.name == "gpu0.cnic0")
    with network_of(port.pid):
        run(["ip", "link", "set", port.device, "mtu", "2000"])  # the bridge now drops what is longer (fault B14)
    with pytest.raises(NetworkFault, match=r"dpu0\.cnic0 to gpu0\.cnic0: frames of 4200 bytes do not arrive"):
        probe(fabric)
    fabric.execute("gpu0", ["ip", "link", "set", "cnic0", "mtu", "1500"])
    with pytest.raises(NetworkFault, match=r"cannot be sent: Message too long|do not arrive"):
        probe(fabric)


def test_tear_down_twice_is_harmless(fabric: Fabric) -> None:
    fabric.tear_down()
    fabric.tear_down()


def test_a_build_that_fails_half_way_leaves_nothing(demo_plan: Plan) -> None:
    class Broken(Names):
        def bridge(self, fabric: str) -> str:
            return "a-name-that-is-much-too-long" if fabric == "compute" else super().bridge(fabric)

    made = Fabric(demo_plan, Broken(demo_plan), {}, lambda _pid, _what: None)
    try:
        with pytest.raises(ProgramFailed, match=r"policy validation|not a valid ifname"):
            made.build()
    finally:
        made.tear_down()
