"""Whether what a run rests on is still as the bench has set it: lanes, the bridges' firewall flag, and inside each
namespace its firewall, links, routes, fixed neighbours and policers.

Lanes and flags are compared at each measurement, the rest when the run begins and when it ends, since reading it
starts programs. A change through the bench itself (`looplane lanes`) is no change here: it keeps the table of what
should be up to date. Packets that a firewall or a policer took are counted where they are missed: see "lost frames" in
`testbed.metrics.fidelity`. Faults B8, B9 (a firewall inside the run's namespaces), B11 (bridge-nf-call-iptables).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testbed.events.fidelity_events import HostChanged
from topologies import lanes
from topologies.fabric import Fabric
from topologies.lane_queues import PortQueues
from topologies.namespaces import network_of
from topologies.programs import ProgramFailed, run
from topologies.queues import QueueReader

FLAGS = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")
_SAVERS = (("iptables-save",), ("ip6tables-save",), ("nft", "--stateless", "list", "ruleset"))
_COUNTERS = re.compile(r"\[\d+:\d+\]")
_UNREAD = "cannot be read:"
_NETWORK = "link show\nroute show table all\nneigh show nud permanent\n"
_COMES_AND_GOES = re.compile(r"(LOWER_UP|NO-CARRIER),|,(LOWER_UP|NO-CARRIER)\b|state \w+ | (linkdown|dead)\b")


class HostWatch:
    """`queues` is the bench's own table of what each port's queues should be."""

    def __init__(self, fabric: Fabric, queues: Mapping[str, PortQueues]) -> None:
        self._ports = fabric.switch_ports()
        self._queues = queues
        self._readers = {pid: QueueReader(pid) for pid in {port.pid for port in self._ports}}
        plan = fabric.plan
        self._switches = {f"switch {each.name}": fabric.switch_pid(each.name) for each in plan.fabrics}
        self._places = {**self._switches, **{each.name: fabric.pid_of(each.name) for each in plan.nodes}}
        self._told: set[tuple[str, str]] = set()
        self._flags = {place: _flags(pid) for place, pid in self._switches.items()}
        self._before = {place: _inside(pid) for place, pid in self._places.items()}

    def close(self) -> None:
        """Closes the sockets."""
        for reader in self._readers.values():
            reader.close()

    def look(self) -> Iterator[HostChanged]:
        """What has changed and has not been told before, of what is cheap to read."""
        for port in self._ports:
            try:
                lanes.check(port, self._queues[port.name], self._readers[port.pid])
            except (lanes.LaneFault, OSError, KeyError) as fault:
                yield from self._once(f"lanes {port.name}", str(fault) or type(fault).__name__)
        for place, pid in self._switches.items():
            for flag, value in _flags(pid).items():
                before = self._flags[place].get(flag)
                if value != before:
                    yield from self._once(f"{flag} of {place}", f"was {before}, is {value}")

    def look_inside(self) -> Iterator[HostChanged]:
        """As `look`, of what is inside every namespace of the run."""
        for place, pid in self._places.items():
            for what, after in _inside(pid).items():
                before = self._before[place][what]
                came = [f"+{line}" for line in after if line not in before]
                went = [f"-{line}" for line in before if line not in after]
                if came or went:
                    yield from self._once(f"{what} of {place}", "; ".join([*came, *went][:6]))

    def _once(self, what: str, detail: str) -> Iterator[HostChanged]:
        if (what, detail) not in self._told:
            self._told.add((what, detail))
            yield HostChanged(what, detail)


def _flags(pid: int) -> dict[str, str]:
    found = {}
    with network_of(pid):
        for flag in FLAGS:
            path = Path("/proc/sys/net/bridge") / flag
            if path.exists():
                found[flag] = path.read_text().strip()
    return found


def _inside(pid: int) -> dict[str, list[str]]:
    """What nobody but the bench sets in the namespace of `pid`, a line each, by what it is."""
    return {"firewall": _firewall(pid), "network": _network(pid), "policers": _policers(pid)}


def _network(pid: int) -> list[str]:
    """Links with MTU and flags, routes, and neighbours that were put there."""
    return [settled(line) for line in _lines(pid, ["ip", "-oneline", "-batch", "-"], _NETWORK)]


def settled(line: str) -> str:
    """What `ip` says of a link or a route, without what a carrier changes that comes or goes."""
    return _COMES_AND_GOES.sub("", line).strip()


def _policers(pid: int) -> list[str]:
    """Queueing disciplines at an ingress, where frames can be dropped before anybody counts them."""
    lines = _lines(pid, ["tc", "qdisc", "show"])
    return [line for line in lines if line.startswith(("qdisc ingress", "qdisc clsact", _UNREAD))]


def _lines(pid: int, words: Sequence[str], asked: str = "") -> list[str]:
    """What a program says in the namespace of `pid`; that it could not is a line too, and hence a change."""
    try:
        with network_of(pid):
            return run(words, stdin=asked).splitlines()
    except (ProgramFailed, OSError) as fault:
        return [f"{_UNREAD} {fault}"]


def _firewall(pid: int) -> list[str]:
    """Rules and policies of the namespace of `pid`, without counters; a program that is not installed says nothing."""
    lines: list[str] = []
    with network_of(pid):
        for words in _SAVERS:
            if shutil.which(words[0], path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
                continue
            try:
                said = run(words)
            except (ProgramFailed, OSError):  # tables that this program cannot read, or no such kernel
                continue
            kept = (line for line in said.splitlines() if line.strip() and not line.startswith("#"))
            lines += [_COUNTERS.sub("", line).strip() for line in kept]
    return lines
