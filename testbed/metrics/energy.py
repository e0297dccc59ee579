"""What a run would draw at the wall plug: a stated power model on what its log says was busy. Nothing is metered.

E_token = P_avg · ΔT / N (summary, energy): P_avg is the mean of samples of 0.5 s as the paper's meter took, ΔT the
time from the first sending to the last end, N the output tokens of completed requests. A sample is the mean power of
its interval, from the time in which graphs ran (graph.launched to tokens.sampled), the server's work on the host
(host.operation) and what neighbours used of the host's CPU set (neighbour.measured). Knows events and watts, no system.
"""

from __future__ import annotations

import msgspec

from testbed.events.host_events import HostOperation, NeighbourMeasured, NeighbourStarted
from testbed.events.log import Record
from testbed.events.run_events import NodeReady, RunStarted
from testbed.events.schema import GraphLaunched, TokensSampled
from testbed.machine import Event
from testbed.units import MILLISECOND, SECOND, Nanoseconds

SAMPLE: Nanoseconds = 500 * MILLISECOND
"""Interval of the paper's meter (summary, energy)."""
PREFILLS = frozenset({"prefill", "chunk", "mixed"})
"""Kinds of graphs that compute on a prompt."""


class PowerModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Watts of the paper's server: two Xeon Gold 6336Y, one H100, ConnectX-6 200G, a BlueField-3 beside Blink's."""

    gpu_idle_w: float = 200.0
    """An H100 with a model loaded and clocks up, between graphs. Our estimate: published meters read 70 to 80 W without
    a context and 267 W at the least while small models decode; who launches every few ms does not let the clocks
    down."""
    gpu_prefill_w: float = 700.0
    """While it computes on prompts: the limit of an H100 SXM (NVIDIA's data sheet), which dense prefill reaches."""
    gpu_decode_w: float = 520.0
    """While it decodes, which HBM bounds. Our estimate: published meters of H100s that serve give 400 to 550 W."""
    host_idle_w: float = 110.0
    """Both sockets with nothing to do. Our estimate: 55 W a socket, uncore and memory controllers awake."""
    host_max_w: float = 370.0
    """Both sockets with every core busy: 2 × 185 W (Intel's data sheet of the Xeon Gold 6336Y)."""
    host_cores: int = 48
    """Physical cores of both sockets (Intel)."""
    beside_share: float = 90 / 96
    """Part of the host's hardware threads on which neighbours run in the paper: 90 of 96 (summary, interference)."""
    dram_w: float = 60.0
    """256 GB in 16 modules. Our estimate: under 4 W a module."""
    nic_w: float = 24.0
    """ConnectX-6 at 200 Gbit/s with passive cables. Our estimate after its manual."""
    dpu_w: float = 75.0
    """A BlueField-3 that serves; only of systems that have one, as in the paper's meter. Our estimate: half of the
    150 W that its manual allows at most; it polls, so it is hardly ever idle."""
    platform_w: float = 260.0
    """Fans, board, voltage regulators, management, disks. Fitted, the only figure that is: what an isolated server that
    decodes lacks to 1.1 kW, the low end of the paper's (summary, energy: 1.1 to 1.4 kW for all systems)."""
    supply_efficiency: float = 0.94
    """Of the power supplies: 80 PLUS Titanium at half load, as the rest is at the plug."""


PAPERS_SERVER = PowerModel()
"""The machine of the paper's evaluation."""


class Opened(msgspec.Struct, array_like=True):
    """A graph that runs."""

    began: Nanoseconds
    prefill: bool


class EnergyState(msgspec.Struct):
    """Busy time by interval of `SAMPLE`; also the result."""

    dilation: float = 1.0
    roles: dict[str, str] = {}
    running: dict[str, dict[int, Opened]] = {}
    """Launches that have not ended, by the node that logged them."""
    free: dict[str, Nanoseconds] = {}
    """When the device of each node that samples was last known to have ended a graph."""
    prefill: dict[int, Nanoseconds] = {}
    """Time of devices on prompts."""
    decode: dict[int, Nanoseconds] = {}
    """Time of devices on other graphs."""
    host: dict[int, Nanoseconds] = {}
    """Core time of the server's work on the host, as it would be on an idle core; that on other nodes is theirs."""
    beside: dict[int, Nanoseconds] = {}
    """Time of the host's whole CPU set that neighbours took."""
    cpus: dict[str, int] = {}
    """Cores that each neighbour may use."""


class EnergyFold:
    """Adds up busy time."""

    state = EnergyState
    takes: frozenset[type[Event]] = frozenset(
        {RunStarted, NodeReady, GraphLaunched, TokensSampled, HostOperation, NeighbourStarted, NeighbourMeasured}
    )

    def start(self) -> EnergyState:
        """Nothing was busy."""
        return EnergyState()

    def step(self, state: EnergyState, record: Record) -> EnergyState:
        """Takes one event."""
        match record.event:
            case RunStarted(dilation=dilation):
                state.dilation = dilation
            case NodeReady(role=role):
                state.roles[record.node] = role
                state.running.pop(record.node, None)
            case GraphLaunched(launch=launch, kind=kind):
                state.running.setdefault(record.node, {})[launch] = Opened(record.t, kind in PREFILLS)
            case TokensSampled(launch=launch):
                _sampled(state, record.node, launch, record.t)
            case HostOperation(amount=amount, elapsed=elapsed) if state.roles.get(record.node, "host") == "host":
                _spread(state.host, record.t - elapsed, record.t, amount)
            case NeighbourStarted(name=name, cpus=cpus):
                state.cpus[name] = max(1, len(cpus))
            case NeighbourMeasured(name=name, interval=interval, cpu=cpu):
                took = round(cpu / state.cpus.get(name, 1) / state.dilation)
                _spread(state.beside, record.t - round(interval / state.dilation), record.t, took)
        return state

    def result(self, state: EnergyState) -> EnergyState:
        """A copy of all sums."""
        return msgspec.structs.replace(
            state,
            roles=dict(state.roles),
            running={node: dict(graphs) for node, graphs in state.running.items()},
            free=dict(state.free),
            prefill=dict(state.prefill),
            decode=dict(state.decode),
            host=dict(state.host),
            beside=dict(state.beside),
            cpus=dict(state.cpus),
        )


class Drawn(msgspec.Struct, frozen=True):
    """What was drawn over a time."""

    seconds: float
    joules: float
    parts: dict[str, float]
    """Joules at the plug by part: gpu, host, dpu, rest; neighbours are in host."""
    samples: int


def drawn(
    usage: EnergyState, begin: Nanoseconds, end: Nanoseconds, *, beside: bool = False, model: PowerModel = PAPERS_SERVER
) -> Drawn | None:
    """Energy from `begin` to `end`; None without time, or where no device ran a graph.

    With `beside`, neighbours of whom no measuring tells (a simulation's) take the host's whole CPU set throughout.
    """
    devices = len({node for node, role in usage.roles.items() if role == "gpu"} | set(usage.free))
    if end <= begin or not usage.free:
        return None
    first, last = begin // SAMPLE, (end - 1) // SAMPLE
    sums = {"gpu": 0.0, "host": 0.0, "dpu": 0.0, "rest": 0.0}
    for number in range(first, last + 1):
        for part, watts in _sample(usage, number, devices, beside=beside, model=model).items():
            sums[part] += watts
    samples, seconds = last - first + 1, (end - begin) / SECOND
    parts = {part: watts / samples * seconds for part, watts in sums.items()}
    return Drawn(seconds, sum(parts.values()), parts, samples)


def _sample(usage: EnergyState, number: int, devices: int, *, beside: bool, model: PowerModel) -> dict[str, float]:
    """Mean watts at the plug over one interval."""
    prefill, decode = (bins.get(number, 0) / SAMPLE for bins in (usage.prefill, usage.decode))
    gpu = model.gpu_idle_w * max(0.0, devices - prefill - decode)
    gpu += model.gpu_prefill_w * prefill + model.gpu_decode_w * decode
    share = min(1.0, usage.beside.get(number, 0) / SAMPLE)
    if beside and not usage.beside:
        share = 1.0
    busy = min(1.0, share * model.beside_share + usage.host.get(number, 0) / SAMPLE / model.host_cores)
    found = {
        "gpu": gpu,
        "host": model.host_idle_w + (model.host_max_w - model.host_idle_w) * busy,
        "dpu": model.dpu_w * sum(role == "dpu" for role in usage.roles.values()),
        "rest": model.dram_w + model.nic_w + model.platform_w,
    }
    return {part: watts / model.supply_efficiency for part, watts in found.items()}


def _sampled(state: EnergyState, node: str, launch: int, now: Nanoseconds) -> None:
    """The graph has ended on `node`; the launch was logged there, or by a host that launches on it.

    Launches before it, which gave no tokens (parts of prompts), ended when the next began.
    """
    owner = node if launch in state.running.get(node, {}) else None
    if owner is None:
        owner = next((other for other, graphs in state.running.items() if launch in graphs), None)
    if owner is None:
        return
    graphs = state.running[owner]
    ended = sorted(number for number in graphs if number <= launch)
    for number, following in zip(ended, [*ended[1:], None], strict=True):
        graph = graphs.pop(number)
        end = now if following is None else graphs[following].began
        begin = max(graph.began, state.free.get(node, 0))
        _spread(state.prefill if graph.prefill else state.decode, begin, end, end - begin)
        state.free[node] = max(state.free.get(node, 0), end)


def _spread(bins: dict[int, Nanoseconds], begin: Nanoseconds, end: Nanoseconds, amount: Nanoseconds) -> None:
    """Adds `amount` to the intervals between `begin` and `end` in proportion; what rounding leaves is in the last."""
    if amount <= 0:
        return
    begin = max(0, begin)
    first, last = begin // SAMPLE, max(begin, end) // SAMPLE
    left = amount
    for number in range(first, last):
        part = amount * ((number + 1) * SAMPLE - max(begin, number * SAMPLE)) // (end - begin)
        bins[number] = bins.get(number, 0) + part
        left -= part
    bins[last] = bins.get(last, 0) + left
