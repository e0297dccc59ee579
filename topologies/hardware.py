"""Real network ports in a run: an interface of the host is lent, moved into a namespace of the run, and given back.

What it was (name, namespace, addresses, routes, MTU, offloads, up or down) is noted in the run's record before it is
touched, and the namespace that gets it is held by a mount of its own. So whoever comes later, this process or the
reaper, can give it back: an interface that is lent is never deleted, also not with a namespace whose processes were
killed (the kernel would delete a veth with it). Which port or switch it becomes is the business of `topologies.fabric`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from testbed.experiment.hardware import Hardware, LentInterface
from testbed.experiment.plan import Plan
from topologies.namespaces import enter_network
from topologies.programs import ProgramFailed, run
from topologies.registry import RunRegistry, boot_id, registered

PLAIN_QUEUES = frozenset({"noop", "noqueue", "pfifo_fast", "mq", "fq_codel", "fq", "pfifo"})
"""Queueing disciplines that the kernel attaches by itself; moving an interface loses any other."""
FEATURES = ("tx-tcp-segmentation", "generic-receive-offload")
"""Offloads that a run changes, as `ethtool -k` names them."""
_SHORT = {"tx-tcp-segmentation": "tso", "generic-receive-offload": "gro"}
FOLDER = "lent"


class HardwareFault(Exception):
    """A real part cannot be used, or not be given back. One line."""


class Lent(msgspec.Struct, frozen=True):
    """An interface as it was on the host, and where it is now: one file of the run's record."""

    name: str
    mac: str
    mtu: int
    up: bool
    gso_max_segs: int
    tx_queue_length: int
    addresses: tuple[str, ...]
    """What follows `ip addr add` for each, without the device."""
    routes: tuple[str, ...]
    """What follows `ip route add` for each, without the device."""
    features: dict[str, str]
    """on or off."""
    place: str
    """What it stands for in the run, as gpu0.cnic0."""
    inside: str
    """Its name in the run's namespace."""
    boot: str
    promiscuous: bool = False
    """Takes every frame because somebody asked for it (IFF_PROMISC)."""

    @property
    def facts(self) -> tuple[str, ...]:
        """What it was before, for the log."""
        return (f"mac {self.mac}", f"mtu {self.mtu} before", "up before" if self.up else "down before")


def wanted(plan: Plan) -> list[tuple[str, LentInterface, int]]:
    """(path in the experiment, interface, MTU that it must carry) of every port and uplink of a plan."""
    fabrics = {fabric.name: fabric.mtu for fabric in plan.fabrics}
    ports = {f"{node.name}.{port.interface}": fabrics[port.fabric] for node in plan.nodes for port in node.ports}
    return [
        *((f'hardware.ports."{place}"', lent, ports[place]) for place, lent in plan.hardware.ports.items()),
        *((f"hardware.uplinks.{name}", lent, fabrics[name]) for name, lent in plan.hardware.uplinks.items()),
    ]


def refusals(plan: Plan) -> list[str]:
    """Why this host cannot lend what the plan asks for, a line each; nothing is touched."""
    lines = []
    for path, lent, mtu in wanted(plan):
        reason = refusal(lent.interface, mtu, force=lent.force)
        if reason:
            lines.append(f'{path}: "{lent.interface}": {reason}')
    return lines


def refusal(name: str, mtu: int, *, force: bool = False) -> str:
    """Why an interface may not be lent; empty if it may."""
    shown = _link(name)
    if shown is None:
        holder = _holder_of(name)
        if holder:
            return f"is lent to run {holder}"
        return f"there is no such interface on this host; there are {', '.join(interfaces()) or 'none'}"
    if "LOOPBACK" in shown["flags"]:
        return "is the loopback of this host"
    if shown.get("master"):
        return f"is a port of {shown['master']}: take it out first"
    above = [link["ifname"] for link in _links() if link.get("link") == name and _kind(link) != "veth"]
    if above:
        return f"carries {', '.join(above)}: remove that first"
    if shown.get("qdisc") not in PLAIN_QUEUES:
        return f"has a queueing discipline of its own ({shown['qdisc']}), which moving it would remove"
    if 0 < shown.get("max_mtu", 0) < mtu:
        return f"carries an MTU of at most {shown['max_mtu']}, the run needs {mtu}: choose a smaller network path_mtu"
    return "" if force else _in_use(name)


def _in_use(name: str) -> str:
    routes = json.loads(run(["ip", "-json", "route", "show", "table", "all", "default", "dev", name]) or "[]")
    if routes:
        return "has the default route: this host would be cut off (force = true takes it all the same)"
    found = [line.split()[0] for line in _addresses(name)]
    if found:
        return f"has the address {found[0]}: somebody may be using it (force = true takes it all the same)"
    return ""


def interfaces() -> list[str]:
    """Names of the host's interfaces but loopback, in the kernel's order."""
    return [link["ifname"] for link in _links() if "LOOPBACK" not in link["flags"]]


def facts(name: str) -> tuple[str, ...]:
    """Driver, firmware, bus and speed of an interface as far as known. A virtual one has no bus (fault D10)."""
    found = []
    with suppress(ProgramFailed):
        for line in run(["ethtool", "-i", name]).splitlines():
            key, _, value = line.partition(": ")
            label = {"driver": "driver", "firmware-version": "firmware", "bus-info": "bus"}.get(key)
            if label and value.strip() and value.strip() != "N/A":
                found.append(f"{label} {value.strip()}")
    with suppress(OSError, ValueError):
        speed = int(Path(f"/sys/class/net/{name}/speed").read_text())
        if speed > 0:
            found.append(f"speed {speed} Mbit/s")
    return tuple(found)


class Lending:
    """The interfaces that one run has borrowed."""

    def __init__(self, registry: RunRegistry, hardware: Hardware) -> None:
        self._registry = registry
        self._hardware = hardware
        self._lent: dict[str, Lent] = {}

    def planned(self, place: str) -> LentInterface | None:
        """What stands for a port (gpu0.cnic0) or an uplink (compute)."""
        return self._hardware.ports.get(place) or self._hardware.uplinks.get(place)

    def mac(self, place: str) -> str:
        """The address of what was lent. Raises KeyError."""
        return self._lent[place].mac

    def lend(self, place: str, mtu: int, network: Path, inside: str) -> tuple[str, ...]:
        """Moves the interface that stands for `place` into the namespace at `network`, as `inside`, down.

        Returns what is known of it. Raises HardwareFault.
        """
        planned = self.planned(place)
        assert planned is not None
        name = planned.interface
        reason = refusal(name, mtu, force=planned.force)
        if reason:
            raise HardwareFault(f"{place}: {name} {reason}")
        known = facts(name)
        lent = _note(name, place, inside)
        _hold(self._registry.folder, lent, network)
        self._lent[place] = lent
        held = _held(self._registry.folder, lent)
        try:
            run(["ip", "link", "set", "dev", name, "down"])
            run(["ip", "link", "set", "dev", name, "netns", str(held), "name", inside])
        except ProgramFailed as fault:
            raise HardwareFault(f"{place}: {name} cannot be moved: {fault.output or fault}") from fault
        return (*known, *lent.facts)

    def give_back(self) -> None:
        """Gives everything back; goes on past what fails and raises the first fault."""
        faults = []
        for lent in lent_by(self._registry):
            try:
                give_back(self._registry, lent)
            except (HardwareFault, ProgramFailed, OSError) as fault:
                faults.append(fault)
        if faults:
            raise faults[0]


def lent_by(registry: RunRegistry) -> list[Lent]:
    """What a run's record says was lent to it and has not been given back."""
    found = []
    for path in sorted((registry.folder / FOLDER).glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Lent))
    return found


def give_back(registry: RunRegistry, lent: Lent) -> None:
    """Puts an interface back as it was and forgets it. One that is nowhere any more has nothing to be put back.

    Raises HardwareFault for what cannot be restored, ProgramFailed.
    """
    if lent.boot == boot_id():
        held = _held(registry.folder, lent)
        if _is_mount(held):
            with _network_at(held) as home:
                _send_home(lent, home)
        stray = _link(lent.inside)  # a namespace that died has let a real port fall back under the name that it had
        if stray is not None and stray["address"] == lent.mac and lent.inside != lent.name:
            run(["ip", "link", "set", "dev", lent.inside, "down"])
            run(["ip", "link", "set", "dev", lent.inside, "name", lent.name])
        shown = _link(lent.name)
        if shown is not None and shown["address"] == lent.mac:
            _restore(lent)
        if _is_mount(held):
            run(["umount", str(held)])
        held.unlink(missing_ok=True)
    _file(registry.folder, lent, "json").unlink(missing_ok=True)


def _send_home(lent: Lent, home: str) -> None:
    shown = _link(lent.inside) or _link(lent.name)
    if shown is None or shown["address"] != lent.mac:
        return
    inside = shown["ifname"]
    for words in (["link", "set", "dev", inside, "down", "nomaster"], ["addr", "flush", "dev", inside]):
        run(["ip", *words])
    with suppress(ProgramFailed):  # there is none to be deleted
        run(["tc", "qdisc", "del", "dev", inside, "root"])
    run(["ip", "link", "set", "dev", inside, "netns", home, "name", lent.name])


def _restore(lent: Lent) -> None:
    """Addresses, MTU, offloads, state and routes, each read back. Runs in the host's own namespace."""
    name = lent.name
    run(["ip", "link", "set", "dev", name, "mtu", str(lent.mtu), "gso_max_segs", str(lent.gso_max_segs),
         "txqueuelen", str(lent.tx_queue_length)])  # fmt: skip
    now = _features(name)
    for feature, state in lent.features.items():
        if now.get(feature) != state:
            run(["ethtool", "-K", name, _SHORT[feature], state])
    present = _addresses(name)
    for address in lent.addresses:
        if address not in present:
            run(["ip", "addr", "add", *address.split(), "dev", name])
    run(["ip", "link", "set", "dev", name, "promisc", "on" if lent.promiscuous else "off"])
    run(["ip", "link", "set", "dev", name, "up" if lent.up else "down"])
    routes = _routes(name)
    for route in lent.routes:
        if route not in routes:
            run(["ip", "route", "add", *route.split(), "dev", name])
    found = _note(name, lent.place, lent.inside)
    for field in lent.__struct_fields__:
        if _unordered(getattr(found, field)) != _unordered(getattr(lent, field)):
            raise HardwareFault(f"{name}: {field} was {getattr(lent, field)!r}, is {getattr(found, field)!r}")


def _unordered(value: object) -> object:
    """The kernel lists addresses and routes by when they came."""
    return frozenset(value) if isinstance(value, tuple) else value


# --- what the kernel says ---------------------------------------------------------------------------------------------


def _note(name: str, place: str, inside: str) -> Lent:
    shown = _link(name)
    if shown is None:
        raise HardwareFault(f"{place}: {name} has gone")
    return Lent(
        name=name,
        mac=shown["address"],
        mtu=shown["mtu"],
        up="UP" in shown["flags"],
        promiscuous="PROMISC" in shown["flags"],
        gso_max_segs=shown["gso_max_segs"],
        tx_queue_length=shown.get("txqlen", 0),
        addresses=tuple(_addresses(name)),
        routes=tuple(_routes(name)),
        features=_features(name),
        place=place,
        inside=inside,
        boot=boot_id(),
    )


def _links() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(["ip", "-json", "-details", "link", "show"]))
    return found


def _link(name: str) -> dict[str, Any] | None:
    return next((link for link in _links() if link["ifname"] == name), None)


def _kind(link: dict[str, Any]) -> str:
    return str(link.get("linkinfo", {}).get("info_kind", ""))


def _addresses(name: str) -> list[str]:
    """Each address in the words of `ip addr add`. IPv6 makes those of the link itself and of routers' advertisements,
    and makes them anew.
    """
    shown = json.loads(run(["ip", "-json", "addr", "show", "dev", name]))
    lines = []
    for entry in (entry for link in shown for entry in link.get("addr_info", [])):
        if entry["family"] == "inet6" and (entry["scope"] == "link" or entry.get("dynamic")):
            continue
        words = [f"{entry['local']}/{entry['prefixlen']}"]
        if "broadcast" in entry:
            words += ["broadcast", entry["broadcast"]]
        if entry.get("label", name) != name:
            words += ["label", entry["label"]]
        words += [flag for flag in ("nodad", "noprefixroute") if entry.get(flag)]
        lines.append(" ".join([*words, "scope", entry["scope"]]))
    return lines


def _routes(name: str) -> list[str]:
    """Routes that somebody has set; the kernel makes those of addresses by itself."""
    lines = []
    for family in ("-4", "-6"):
        with suppress(ProgramFailed):  # no IPv6 here
            for line in run(["ip", family, "route", "show", "table", "all", "dev", name]).splitlines():
                words = line.split()
                if not {"kernel", "ra"} & set(words) and words[0] not in ("local", "broadcast", "multicast", "anycast"):
                    lines.append(" ".join(word for word in words if word not in ("linkdown", "dead")))
    return lines


def _features(name: str) -> dict[str, str]:
    found = {}
    for line in run(["ethtool", "-k", name]).splitlines():
        key, _, value = line.strip().partition(": ")
        if key in FEATURES:
            found[key] = value.split()[0]
    return found


def _holder_of(name: str) -> str:
    for registry in registered():
        if any(lent.name == name for lent in lent_by(registry)):
            return registry.label
    return ""


# --- the record, and the namespace that is held -----------------------------------------------------------------------


def _file(folder: Path, lent: Lent, kind: str) -> Path:
    return folder / FOLDER / f"{lent.place}.{kind}"


def _held(folder: Path, lent: Lent) -> Path:
    return _file(folder, lent, "net")


def _hold(folder: Path, lent: Lent, network: Path) -> None:
    """Notes what is about to be lent, then holds the namespace: it outlives its processes while the mount stands."""
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    held = _held(folder, lent)
    held.touch(mode=0o600)
    run(["mount", "--bind", str(network), str(held)])
    path = _file(folder, lent, "json")
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(lent))
    temporary.replace(path)


def _is_mount(path: Path) -> bool:
    """Whether something is mounted on this file."""
    try:
        return path.stat().st_dev != path.parent.stat().st_dev
    except FileNotFoundError:
        return False


@contextmanager
def _network_at(path: Path) -> Iterator[str]:
    """Within the block the calling thread stands in the namespace at `path`; gives a path to the one that it left."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter_network(there)
        finally:
            os.close(there)
        try:
            yield f"/proc/{os.getpid()}/fd/{home}"
        finally:
            enter_network(home)
    finally:
        os.close(home)


def network_path(pid: int) -> Path:
    """Where the network namespace of a process is found."""
    return Path(f"/proc/{pid}/ns/net")

