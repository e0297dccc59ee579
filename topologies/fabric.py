"""A plan's networks as a Mininet network: one Linux bridge a fabric, each in a namespace of its own.

The one module that imports mininet, and nothing here is left to Mininet's silence: links are configured by `ip -batch`,
whose status is checked, and read back. What Mininet does otherwise is switched off with the reason beside it
(platform.md, traps). Queues are not set here: `topologies.lanes` owns them whole.
"""

# mypy: allow-untyped-calls, disable-error-code="override"
# (mininet has no types, and overriding its `config(**params)` narrows what nobody calls with more)

from __future__ import annotations

import importlib.util
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

with warnings.catch_warnings():  # mininet imports distutils, which Python 3.11 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    if importlib.util.find_spec("distutils") is None:  # and 3.12 has no more; it compares Open vSwitch's versions by it
        sys.modules["distutils"] = types.ModuleType("distutils")
        sys.modules["distutils.version"] = types.ModuleType("distutils.version")
        sys.modules["distutils.version"].StrictVersion = str  # type: ignore[attr-defined]
    from mininet.link import Intf, Link
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import Host, Switch

import msgspec

from testbed.events.fidelity_events import HardwareEngaged
from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan
from topologies.hardware import Lending, network_path
from topologies.namespaces import network_of, set_sysctl
from topologies.naming import Names, port_name
from topologies.programs import ProgramFailed, run

LINK_PATIENCE_S = 10.0
"""A real port that has just been set up needs some seconds until its link is there (auto-negotiation)."""


class NetworkFault(Exception):
    """The network is not what the plan says."""


class SwitchPort(NamedTuple):
    """The switch's end of a node's link; of a port that is not ours, the node's own end."""

    name: str
    """As events name it: node.interface."""
    pid: Any
    """A process in the switch's namespace."""
    device: str
    fabric: FabricPlan
    node: NodePlan
    port: PortPlan


class _QuietInterface(Intf):
    """An interface that Mininet leaves alone: it would use ifconfig and hide what that says."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}


class _Silent:
    """A node that sends nothing of its own accord: IPv6 is off before its first link exists (fault B12)."""

    pid: Any
    isSetup = True  # noqa: N815  # Mininet's name
    """Mininet would look for ifconfig and end the whole process if it found none."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802  # Mininet's name
        super().startShell(mnopts)  # type: ignore[misc]
        with network_of(self.pid):
            for branch in ("all", "default"):
                set_sysctl(f"net/ipv6/conf/{branch}/disable_ipv6", "1")
            run(["ip", "link", "set", "lo", "up"])

    def terminate(self) -> None:
        """Ends the shell. Mininet sends SIGHUP and waits without limit; SIGKILL cannot be ignored."""
        shell: subprocess.Popen[bytes] | None = getattr(self, "shell", None)
        if shell is not None and shell.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        self.cleanup()  # type: ignore[attr-defined]


class PlanHost(_Silent, Host):
    """A node: a namespace of its own, or, with `attach`, that of a running container's process."""

    def __init__(self, name: str, attach: int | None = None, **params: Any) -> None:
        self._attach = attach
        super().__init__(name, **params)

    def _popen(self, cmd: Sequence[str], **params: Any) -> subprocess.Popen[bytes]:
        if self._attach is not None and cmd[0] == "mnexec":
            # Only the network is entered: `mnexec -a` would take the container's files and programs as well.
            words = [cmd[0], cmd[1].replace("n", ""), *cmd[2:]]
            with network_of(self._attach):
                popen: subprocess.Popen[bytes] = super()._popen(words, **params)
            return popen
        started: subprocess.Popen[bytes] = super()._popen(cmd, **params)
        return started

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing: `Fabric` configures."""
        return {}


class BridgeSwitch(_Silent, Switch):
    """A fabric's switch: a Linux bridge in a namespace of its own, away from Docker's firewall (faults B8, B11)."""

    def __init__(self, name: str, **params: Any) -> None:
        params.update(inNamespace=True, dpid="1")  # Mininet would insist on a digit in the name
        super().__init__(name, **params)

    def start(self, _controllers: Sequence[object]) -> None:
        """Nothing: `Fabric` makes the bridge, with its status checked."""


class Fabric:
    """The networks of one plan. `build` makes them, `tear_down` ends them; both leave the host's own namespace alone.

    `attach` names, for each node that runs in a container, a process in it; all other nodes get a namespace of their
    own. `note(pid, what)` is told each process as it is started, for the reaper. Where the plan has real ports,
    `lending` moves them in; whoever made it has them given back, before `tear_down`.
    """

    def __init__(
        self,
        plan: Plan,
        names: Names,
        attach: Mapping[str, int],
        note: Callable[[int, str], object],
        lending: Lending | None = None,
    ) -> None:
        self.plan = plan
        self.names = names
        self._attach = dict(attach)
        self._note = note
        self._lending = lending
        self.engaged: list[HardwareEngaged] = []
        """Interfaces of the host that `build` has put in."""
        self._net: Any = None
        self._fabrics = {fabric.name: fabric for fabric in plan.fabrics}

    def build(self) -> None:
        """Makes namespaces, links and bridges and checks them. Raises NetworkFault, ProgramFailed or OSError."""
        setLogLevel("error")
        Mininet.inited = True  # its `init` would change a dozen sysctls of the whole host (fixLimits)
        if shutil.which("mnexec") is None:
            raise NetworkFault("mnexec is not installed (apt-get install mininet)")
        self._net = Mininet(
            host=PlanHost, switch=BridgeSwitch, link=Link, intf=_QuietInterface, controller=None, build=False
        )
        for fabric in self.plan.fabrics:
            switch = self._net.addSwitch(self.names.switch(fabric.name))
            self._note(switch.pid, f"switch {fabric.name}")
        for node in self.plan.nodes:
            attach = self._attach.get(node.name)
            host = self._net.addHost(self.names.host(node.name), cls=PlanHost, attach=attach, ip=None)
            self._note(host.pid, f"network {node.name}")
        for port in self.ports():
            self._link(port)
        self._lend()
        for fabric in self.plan.fabrics:
            self._configure_switch(fabric)
        for node in self.plan.nodes:
            self._configure_node(node)
        self._net.built = True
        self._net.start()
        self.verify()

    def tear_down(self) -> None:
        """Ends every namespace that is not a container's, and with it links and bridges. Safe after half a `build`."""
        if self._net is None:
            return
        for port in self.ports():  # in containers the links would live on until these are removed
            if port.node.name in self._attach:
                with suppress(OSError, ProgramFailed, KeyError), network_of(self.pid_of(port.node.name)):
                    run(["ip", "link", "del", port.port.interface])
        for node in [*self._net.hosts, *self._net.switches]:
            node.terminate()
        self._net = None

    def namespaces(self) -> int:
        """How many network namespaces are its own: containers bring theirs."""
        return 0 if self._net is None else len(self._net.hosts) + len(self._net.switches) - len(self._attach)

    def interfaces(self) -> int:
        """How many interfaces the kernel has in its networks, loopback left out. Raises ProgramFailed or OSError."""
        if self._net is None:
            return 0
        found = 0
        for node in [*self._net.hosts, *self._net.switches]:
            with network_of(node.pid):
                found += sum(link["ifname"] != "lo" for link in json.loads(run(["ip", "-json", "link", "show"])))
        return found

    def ended(self) -> str:
        """The first node or switch whose shell, which keeps its namespace, has ended; empty while all run."""
        if self._net is None:
            return ""
        named = [(f"switch {fabric.name}", self.names.switch(fabric.name)) for fabric in self.plan.fabrics]
        named += [(f"network {node.name}", self.names.host(node.name)) for node in self.plan.nodes]
        for what, name in named:
            code = self._net.nameToNode[name].shell.poll()
            if code is not None:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
                return f"{what}: the shell that keeps its namespace {how}"
        return ""

    def pid_of(self, node: str) -> int:
        """A process that stands in the network namespace of `node`. Raises KeyError."""
        pid: int = self._net.nameToNode[self.names.host(node)].pid
        return pid

    def switch_pid(self, fabric: str) -> int:
        """A process that stands in the namespace of a fabric's switch. Raises KeyError."""
        pid: int = self._net.nameToNode[self.names.switch(fabric)].pid
        return pid

    def ports(self) -> list[SwitchPort]:
        """Every switch port that leads to a node, in the plan's order."""
        lent = self.plan.hardware.ports
        return [
            self._member(node, port)
            for node in self.plan.nodes
            for port in node.ports
            if port_name(node.name, port.interface) not in lent
        ]

    def members(self) -> list[SwitchPort]:
        """Every port of every node; where it is a real one, its own end and address."""
        return [self._member(node, port) for node in self.plan.nodes for port in node.ports]

    def uplinks(self) -> list[SwitchPort]:
        """Switch ports that lead out of the run, one a fabric at most."""
        return [self._uplink(self._fabrics[name]) for name in self.plan.hardware.uplinks]

    def switch_ports(self) -> list[SwitchPort]:
        """All ports of our switches: those with queues of ours and readings."""
        return [*self.ports(), *self.uplinks()]

    def execute(self, node: str, argv: Sequence[str], timeout_s: float = 60.0) -> str:
        """Runs a program in the network namespace of `node`, with the host's files. Raises ProgramFailed."""
        with network_of(self.pid_of(node)):
            return run(argv, timeout_s=timeout_s)

    def verify(self) -> None:
        """Reads both ends of every link back. Raises NetworkFault that names the first that is not as planned."""
        for port in self.members():
            node_pid = self.pid_of(port.node.name)
            self._verify(port, "node", node_pid, port.port.interface, {"address": port.port.mac, "gso_max_segs": 1})
        for port in self.switch_ports():
            self._verify(port, "switch", port.pid, port.device, {"master": self.names.bridge(port.fabric.name)})

    def _verify(self, port: SwitchPort, end: str, pid: int, device: str, more: Mapping[str, object]) -> None:
        shown = self._shown(pid, device)
        if port.name in self.plan.hardware.ports or port.node is _OUTSIDE:
            limit = time.monotonic() + LINK_PATIENCE_S
            while shown.get("operstate") != "UP" and time.monotonic() < limit:
                time.sleep(0.05)
                shown = self._shown(pid, device)
        for key, planned in {"mtu": port.fabric.mtu, "operstate": "UP", **more}.items():
            if shown.get(key) != planned:
                found = shown.get(key)
                raise NetworkFault(f"{port.name}: {key} at the {end}'s end is {found}, planned {planned}")

    def _member(self, node: NodePlan, port: PortPlan) -> SwitchPort:
        name, fabric = port_name(node.name, port.interface), self._fabrics[port.fabric]
        if name in self.plan.hardware.ports and self._lending is not None:
            # A real port keeps its own address, which its switch and its firmware know.
            own = msgspec.structs.replace(port, mac=self._lending.mac(name))
            return SwitchPort(name, self.pid_of(node.name), port.interface, fabric, node, own)
        device = self.names.switch_port(node.name, port.interface)
        return SwitchPort(name, self.switch_pid(port.fabric), device, fabric, node, port)

    def _uplink(self, fabric: FabricPlan) -> SwitchPort:
        rates = [port for node in self.plan.nodes for port in node.ports if port.fabric == fabric.name]
        fastest = max(rates, key=lambda port: port.rate_bits_per_s)
        port = msgspec.structs.replace(fastest, interface="uplink", address="", mac="")
        name, pid = port_name(fabric.name, "uplink"), self.switch_pid(fabric.name)
        return SwitchPort(name, pid, self.names.uplink(fabric.name), fabric, _OUTSIDE, port)

    def _lend(self) -> None:
        """Moves the host's interfaces in, down and as yet without an address. Raises HardwareFault."""
        if self._lending is None:
            return
        for node in self.plan.nodes:
            for port in node.ports:
                place, mtu = port_name(node.name, port.interface), self._fabrics[port.fabric].mtu
                self._engage("port", place, mtu, self.pid_of(node.name), port.interface)
        for fabric in self.plan.fabrics:
            inside = self.names.uplink(fabric.name)
            self._engage("uplink", fabric.name, fabric.mtu, self.switch_pid(fabric.name), inside)

    def _engage(self, seam: str, place: str, mtu: int, pid: int, inside: str) -> None:
        planned = self._lending.planned(place) if self._lending is not None else None
        if planned is not None and self._lending is not None:
            facts = self._lending.lend(place, mtu, network_path(pid), inside)
            self.engaged.append(HardwareEngaged(seam, place, planned.interface, facts))

    def _shown(self, pid: int, device: str) -> dict[str, Any]:
        with network_of(pid):
            shown: dict[str, Any] = json.loads(run(["ip", "-json", "-details", "link", "show", "dev", device]))[0]
            return shown

    def _link(self, port: SwitchPort) -> None:
        # Both ends are born in their namespaces: there is no moment in which one is stranded outside (fault A5).
        self._net.addLink(
            self._net.nameToNode[self.names.host(port.node.name)],
            self._net.nameToNode[self.names.switch(port.fabric.name)],
            intfName1=port.port.interface,
            intfName2=port.device,
            addr1=port.port.mac,
            addr2=_switch_mac(port.port.mac),
        )

    def _configure_switch(self, fabric: FabricPlan) -> None:
        bridge = self.names.bridge(fabric.name)
        ports = [port for port in self.ports() if port.fabric is fabric]
        uplinks = [port for port in self.uplinks() if port.fabric is fabric]
        lines = [f"link add {bridge} mtu {fabric.mtu} type bridge stp_state 0 mcast_snooping 0 nf_call_iptables 0"]
        for port in [*ports, *uplinks]:
            lines.append(f"link set {port.device} mtu {fabric.mtu} master {bridge}")
            lines.append(f"link set {port.device} up")
        lines.append(f"link set {bridge} up")
        with network_of(self.switch_pid(fabric.name)):
            set_sysctl("net/bridge/bridge-nf-call-iptables", "0")
            set_sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
            set_sysctl("net/bridge/bridge-nf-call-arptables", "0")
            run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
            if ports:
                # Where each address is, is known: no frame is ever flooded to a port that it is not for.
                known = [f"fdb replace {port.port.mac} dev {port.device} master static" for port in ports]
                known += [f"link set dev {port.device} learning off flood off mcast_flood off" for port in ports]
                # Real ports lie behind the uplink; it also learns and floods: what else lies there we do not know.
                known += [
                    f"fdb replace {port.port.mac} dev {uplink.device} master static"
                    for uplink in uplinks
                    for port in self.members()
                    if port.fabric is fabric and port.name in self.plan.hardware.ports
                ]
                run(["bridge", "-batch", "-"], stdin="\n".join(known) + "\n")
            for port in [*ports, *uplinks]:
                # veth gathers packets in order (GRO by NAPI) only where the peer does not segment (platform.md §3).
                run(["ethtool", "-K", port.device, "tso", "off"])

    def _configure_node(self, node: NodePlan) -> None:
        lines = []
        for port in node.ports:
            fabric = self._fabrics[port.fabric]
            prefix = ipaddress.ip_network(fabric.subnet).prefixlen
            # One segment a packet: the arbiter behind this link decides packet by packet, and captures show packets.
            lines.append(f"link set {port.interface} mtu {fabric.mtu} gso_max_segs 1")
            lines.append(f"addr add {port.address}/{prefix} dev {port.interface}")
            lines.append(f"link set {port.interface} up")
            lines += [
                f"neigh replace {other.port.address} lladdr {other.port.mac} dev {port.interface} nud permanent"
                for other in self.members()
                if other.fabric is fabric and other.node.name != node.name
            ]
        if not lines:
            return
        with network_of(self.pid_of(node.name)):
            run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
            for port in node.ports:
                run(["ethtool", "-K", port.interface, "gro", "on"])


_OUTSIDE = NodePlan(name="outside", role="host", cores="host", memory_mib=0)
"""What an uplink leads to."""


def _switch_mac(mac: str) -> str:
    """A locally administered address for the switch's end, told from the node's by its first byte."""
    first = int(mac[:2], 16) ^ 0x04
    return f"{first | 0x02:02x}{mac[2:]}"
