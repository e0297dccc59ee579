"""What saturates when every storage NIC always has reads to do: the hop table under fluid sharing, without compute.

Each SNIC keeps a fixed number of reads going; a read goes through the hops of its path (`testbed.dualpath.read_paths`)
in a few coarse layers, engines in turn on both sides, and shares every resource that its hops cross by the max-min
rule of the wires (`testbed.network.fluid`). SNICs read as fast as what comes behind lets them, so the mix of both
paths is the one that keeps all SNICs busy, until another resource holds them back. It checks the closed forms of
`testbed.dualpath.bounds`, and uses none of them. Machines, compute and blocks are left out; time is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from testbed.dualpath.bounds import Cluster, Resource
from testbed.dualpath.read_paths import crossed
from testbed.dualpath.service_levels import KV
from testbed.network.fluid import FluidPort, Transfer, share
from testbed.network.lanes import LaneTable
from testbed.units import GBYTE_PER_S, Nanoseconds

_FRAME = 4_096
_TABLE = LaneTable()
_READ_BYTES = 64_000_000
"""Of one read, so much that a whole nanosecond is nothing beside it."""
_PATHS = {
    "pe": ("pe1-2", ("pe3-4", "pe5-7"), "pe8-9"),
    "de": ("de1-2", ("de3-5",), "de6-7"),
}
"""Of the path of either side: what comes once, with each layer, and once behind all layers. Hits alone, no misses."""


class Nic:
    """One SNIC: reads one thing after another, and as many are on their way as it is allowed."""

    def __init__(self, side: str, node: int, number: int, own: Iterator[int], far: Iterator[int]) -> None:
        self.side = side
        self.node = node
        self.number = number
        self.own = own
        """Engines of its node, in turn for ever."""
        self.far = far
        """Engines of the other side, likewise."""
        self.busy = False
        self.on_their_way = 0


class Read:
    """One read on its way, by the ports that it uses."""

    def __init__(self, nic: Nic, ports: dict[str, tuple[str, str]], layers: int) -> None:
        self.nic = nic
        self.before, self.each, self.behind = _PATHS[nic.side]
        self.ports = ports
        """(source, target) by hop."""
        self.layers = layers
        self.open = layers
        """Layers that have not come through."""


class LoadModel:
    """One run of the model. Rates of `cluster` are in GB/s."""

    def __init__(self, cluster: Cluster, *, layers: int = 2, reads_a_nic: int = 32) -> None:
        self._cluster = cluster
        self._layers = layers
        self._most = reads_a_nic
        self._now: Nanoseconds = 0
        self._numbers = count()
        self._flowing: dict[int, Transfer] = {}
        self._ports: dict[str, FluidPort] = {}
        self._names: dict[int, str] = {}
        """Of resources, by the identity of their port."""
        self._carried: dict[str, int] = {}
        """Bits times 1e9, by resource."""
        self._finished = 0
        self._nics = list(self._all_nics())

    def run(self, reads: int, *, full: bool = False) -> dict[Resource, float]:
        """Mean load of each kind of resource, 1 when full, while `reads` reads an SNIC end, after as many before.

        It begins empty, or `full` with all reads somewhere behind the SNICs: near a bound either state takes long to
        go over into the other. Resources without limit are left out.
        """
        for nic in self._nics:
            for place in range(self._most - 1 if full else 0):
                self._last_layer(self._next(nic), place)
            self._read(nic)
        self._advance(reads * len(self._nics))
        self._carried.clear()
        began = self._now
        self._advance(reads * len(self._nics))
        return {
            kind: self._load(kind, self._now - began) for kind in Resource if self._cluster.capacity(kind) is not None
        }

    def _load(self, kind: Resource, time: Nanoseconds) -> float:
        side, _, what = kind.value.partition(".")
        what = "snic_rx" if what == "snic" else what
        carried = sum(
            bits for name, bits in self._carried.items() if name.startswith(side) and name.endswith(f".{what}")
        )
        capacity = self._cluster.capacity(kind)
        assert capacity is not None
        return float(carried / (capacity * GBYTE_PER_S * time * self._cluster.nodes(kind)))

    # --- who reads ----------------------------------------------------------------------------------------------

    def _all_nics(self) -> Iterator[Nic]:
        """Their turns begin at engines that lie evenly apart, so that they do not all come to the same one."""
        cluster = self._cluster
        for side, nodes, others in (
            ("pe", cluster.prefill_nodes, cluster.decode_nodes),
            ("de", cluster.decode_nodes, cluster.prefill_nodes),
        ):
            for place in range(nodes * cluster.snics):
                node, number = divmod(place, cluster.snics)
                own = number * cluster.engines // cluster.snics
                far = place * others * cluster.engines // (nodes * cluster.snics)
                yield Nic(side, node, number, count(own), count(far))

    def _read(self, nic: Nic) -> None:
        """Starts the SNIC's next read, if it may."""
        if nic.busy or nic.on_their_way >= self._most:
            return
        nic.busy = True
        read = self._next(nic)
        self._flow(read, read.before, _READ_BYTES, partial(self._arrived, read))

    def _next(self, nic: Nic) -> Read:
        nic.on_their_way += 1
        g, far_engine = self._cluster.engines, next(nic.far)
        others = self._cluster.decode_nodes if nic.side == "pe" else self._cluster.prefill_nodes
        own = f"{nic.side}{nic.node}.cnic{next(nic.own) % g}"
        far = f"{'de' if nic.side == 'pe' else 'pe'}{far_engine % others}.cnic{far_engine // others % g}"
        storage = (f"storage.snic{nic.number}", f"{nic.side}{nic.node}.snic{nic.number}")
        if nic.side == "pe":
            ports = {"pe1-2": storage, "pe3-4": (own, own), "pe5-7": (own, far), "pe8-9": (far, far)}
        else:
            ports = {"de1-2": storage, "de3-5": (own, far), "de6-7": (own, own)}
        return Read(nic, ports, self._layers)

    def _last_layer(self, read: Read, place: int) -> None:
        """A read that has only its last layer left, or not even that."""
        read.layers = read.open = 1
        stage = place % (len(read.each) + 1)
        if stage < len(read.each):
            self._hop(read, 0, stage)
        else:
            self._through(read)

    def _arrived(self, read: Read) -> None:
        read.nic.busy = False
        self._hop(read, 0, 0)
        self._read(read.nic)

    def _hop(self, read: Read, layer: int, place: int) -> None:
        """One hop of one layer; the next layer's first hop begins when this one's has ended."""

        def ended() -> None:
            if place == 0 and layer + 1 < read.layers:
                self._hop(read, layer + 1, 0)
            if place + 1 < len(read.each):
                self._hop(read, layer, place + 1)
            else:
                self._through(read)

        self._flow(read, read.each[place], _READ_BYTES // read.layers, ended)

    def _through(self, read: Read) -> None:
        read.open -= 1
        if not read.open:
            self._flow(read, read.behind, _READ_BYTES, partial(self._ended, read))

    def _ended(self, read: Read) -> None:
        self._finished += 1
        read.nic.on_their_way -= 1
        self._read(read.nic)

    # --- what flows ---------------------------------------------------------------------------------------------

    def _flow(self, read: Read, hop: str, size_bytes: int, ended: Callable[[], None]) -> None:
        ports = [self._port(name) for name in crossed(hop, *read.ports[hop])]
        limited = tuple(port for port in ports if port is not None)
        transfer = Transfer(next(self._numbers), size_bytes, _TABLE.lane_of(KV), limited, self._now)
        transfer.ended = lambda _now: ended()
        self._flowing[transfer.number] = transfer
        for port in limited:
            port.enter(transfer)

    def _port(self, name: str) -> FluidPort | None:
        """The resource of that name; None where it has no limit of its own."""
        rate = {
            "snic_rx": self._cluster.snic,
            "cnic_read": self._cluster.cnic,
            "cnic_write": self._cluster.cnic,
            "dram": self._cluster.dram,
        }.get(name.rpartition(".")[2])
        if rate is None:
            # The storage's side, as in the paper; the wire of a CNIC carries no more than its PCIe link.
            return None
        if name not in self._ports:
            self._ports[name] = FluidPort(int(rate * GBYTE_PER_S), None if name.endswith(".dram") else _TABLE)
            self._names[id(self._ports[name])] = name
        return self._ports[name]

    def _advance(self, reads: int) -> None:
        finished = self._finished + reads
        while self._finished < finished:
            self._step()

    def _step(self) -> None:
        """To the next end of a transfer; all that end then end together."""
        flowing = [self._flowing[number] for number in sorted(self._flowing)]
        for transfer, rate in zip(flowing, share(flowing, _FRAME), strict=True):
            transfer.rate = rate
        length = min(-(-transfer.left // transfer.rate) for transfer in flowing if transfer.rate)
        self._now += length
        for transfer in flowing:
            for port in transfer.ports:
                name = self._names[id(port)]
                self._carried[name] = self._carried.get(name, 0) + transfer.rate * length
            transfer.advance(self._now)
        for transfer in [transfer for transfer in flowing if transfer.left <= 0]:
            del self._flowing[transfer.number]
            for port in transfer.ports:
                port.leave(transfer)
            transfer.ended(self._now)
