"""What can be said of a DualPath system before it runs: who reads, which P/D is free of bottlenecks, what binds.

Words for the notes of a plan, from parameters, rates and step times alone (`testbed.dualpath.bounds`; design dualpath
1.7, with the paper's trace of 1.10 where a workload must be named). It runs nothing and knows no plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from testbed.dualpath.bounds import SNICS, Bound, Cluster, Resource, binding, bounds, in_words, loads, window
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.profiled import APPEND_TOKENS, CONTEXT_TOKENS, processed_tokens
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.units import GBYTE_PER_S, SECOND

_NAMES = {
    Resource.PE_SNIC: "the SNICs of prefill nodes",
    Resource.DE_SNIC: "the SNICs of decode nodes",
    Resource.PE_CNIC_READ: "PE CNIC read",
    Resource.PE_CNIC_WRITE: "PE CNIC write",
    Resource.DE_CNIC_READ: "DE CNIC read",
    Resource.DE_CNIC_WRITE: "DE CNIC write",
    Resource.PE_DRAM: "PE DRAM",
    Resource.DE_DRAM: "DE DRAM",
}


def cluster_of(parameters: DualPathParameters, rates: Mapping[str, int]) -> Cluster:
    """The machines of a system, rates in GB/s; `rates` are true bits per second of ports by fabric.

    B is the CNIC's PCIe link, or its wire where that is slower or PCIe is left out.
    """
    wire = Fraction(rates["compute"], GBYTE_PER_S)
    pcie = Fraction(str(parameters.pcie_gbyte_s))
    return Cluster(
        prefill_nodes=parameters.prefill_nodes,
        decode_nodes=parameters.decode_nodes,
        engines=parameters.engines_per_node,
        snics=parameters.storage_nics,
        cnic=min(wire, pcie) if pcie else wire,
        snic=Fraction(rates["storage"], GBYTE_PER_S),
        dram=Fraction(str(_buffer_gbyte_s(parameters))) or None,
        loop_back=parameters.copy == "cnic",
    )


def _buffer_gbyte_s(parameters: DualPathParameters) -> float:
    """M: of the memory that buffers lie in."""
    return parameters.cxl_gbyte_s if parameters.cxl == "buffers" else parameters.dram_gbyte_s


def what_ifs(parameters: DualPathParameters) -> list[str]:
    """What of the system is no hardware of the paper's, and what an emulation does about it."""
    notes = []
    if parameters.copy == "copy_engine":
        rule = "in the lane of KV, behind collectives" if parameters.pcie_qos else "taking turns with all of the CNIC"
        notes.append(
            f"host-device copies by the GPU's copy engine share its PCIe link, {rule}, under the simulated "
            "clock's flow wire; an emulation has no PCIe link: there they take their own time and disturb nobody"
        )
    if parameters.copy == "nic_integrated":
        notes.append(
            "host-device copies by an engine on the NIC (what-if) cross PCIe once and no wire under the simulated "
            "clock's flow wire; in an emulation they are loop-backs with a shorter submit time"
        )
    if parameters.cxl != "none":
        what = "the KV pool lies" if parameters.cxl == "pool" else "PE and DE buffers lie"
        notes.append(
            f"{what} in CXL memory (what-if) of {parameters.cxl_gbyte_s:g} GB/s a node under the simulated clock's "
            "flow wire; an emulation models neither DRAM nor CXL"
        )
    return notes


def foresight(parameters: DualPathParameters, rates: Mapping[str, int]) -> list[str]:
    """Notes for the plan of a DualPath system, or of one that it is compared with. Raises `ProfileError`."""
    if parameters.read_path == "bypass":
        return ["no KV is read, copied or transferred: compute alone bounds this system"]
    cluster = cluster_of(parameters, rates)
    shares = {"prefill": (Fraction(1), Fraction(0)), "decode": (Fraction(0), Fraction(1))}
    prefill, decode = shares.get(parameters.read_path, (Fraction(1), Fraction(1)))
    found = loads(cluster, prefill=prefill, decode=decode)
    first = binding(found)
    at_most = cluster.storage * (cluster.prefill_nodes * prefill + cluster.decode_nodes * decode)
    speed = at_most / max(found[first], Fraction(1))
    notes = [_readers(parameters, cluster), _window(cluster)]
    if first in SNICS:
        words = f"reads are storage-bound on {_who(prefill, decode)}: no other NIC or memory is full before them"
    else:
        words = (
            f"{_NAMES[first]} would saturate first, at {float(100 / found[first]):.0f} % of what "
            f"{_who(prefill, decode)} can read"
        )
    notes.append(f"at this P/D of {in_words(cluster.ratio)} {words}")
    served = parameters.storage_nodes * cluster.snic
    if served < speed:
        notes.append(
            f"{_count(parameters.storage_nodes, 'storage node')} can send {float(served):g} GB/s, less than the "
            f"{float(speed):g} GB/s that the readers could take: storage nodes bind before them"
        )
        speed = served
    if pool := parameters.dram_pool_bytes:
        left = max(0, pool - parameters.dram_pool_squeeze_bytes)
        notes.append(f"hits that are in the DRAM pool of {left / 10**9:g} GB a node need no SNIC; the others do")
    notes.append(_tokens(parameters, speed))
    return notes + what_ifs(parameters)


def _readers(parameters: DualPathParameters, cluster: Cluster) -> str:
    prefill, decode = cluster.prefill_nodes * cluster.snics, cluster.decode_nodes * cluster.snics
    sides = {
        "prefill": f"by prefill nodes alone ({_count(prefill, 'SNIC')}); the {decode} of decode nodes only write",
        "decode": f"by decode nodes alone ({_count(decode, 'SNIC')}); the {prefill} of prefill nodes are idle",
    }
    both = f"by {_count(prefill, 'SNIC')} of prefill nodes and {decode} of decode nodes ({parameters.read_path})"
    return f"hit KV is read {sides.get(parameters.read_path, both)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _who(prefill: Fraction, decode: Fraction) -> str:
    if prefill and decode:
        return "the SNICs of both sides"
    return _NAMES[Resource.PE_SNIC if prefill else Resource.DE_SNIC]


def _window(cluster: Cluster) -> str:
    dram = "without limit" if cluster.dram is None else f"{float(cluster.dram):g} GB/s a node"
    head = f"bounds for g={cluster.engines}, s={in_words(cluster.s)} (B={float(cluster.cnic):g} GB/s, M={dram})"
    found = window(cluster)
    if not found.possible:
        never = [_NAMES[bound.resource] for bound in bounds(cluster) if not bound.possible]
        return f"{head}: no P/D keeps all SNICs busy" + (f"; {', '.join(never)} cannot carry it" if never else "")
    ends = [*_end(found.at_least), "P/D", *_end(found.at_most)]
    return f"{head}: {' <= '.join(ends)}; beyond these {_beyond(found.at_least, found.at_most)} would saturate"


def _end(bound: Bound | None) -> list[str]:
    if bound is None:
        return []
    end = bound.at_least if bound.at_least is not None else bound.at_most
    return [] if end is None else [in_words(end)]


def _beyond(*ends: Bound | None) -> str:
    return " and ".join(_NAMES[end.resource] for end in ends if end is not None)


def _tokens(parameters: DualPathParameters, gbyte_s: Fraction) -> str:
    """What storage can bring against what prefill engines can take, at the mean turn of the paper's 64K trace."""
    token_bytes = Fraction(AGENTIC_MODELS[parameters.model].token_bytes * parameters.fetch_percent, 100)
    brought = gbyte_s * 10**9 / token_bytes
    engines = parameters.prefill_nodes * parameters.engines_per_node
    hit_share = Fraction(CONTEXT_TOKENS, CONTEXT_TOKENS + APPEND_TOKENS)
    taken = engines * processed_tokens(parameters, SECOND) * hit_share
    if taken > brought:
        bound = f"storage-bound: these wait {float(1 - brought / taken):.0%} of their time"
    else:
        bound = f"compute-bound: SNICs that may read are busy {float(taken / brought):.0%} of their time"
        if parameters.read_path in ("prefill", "decode"):
            bound += ", and a second path would gain nothing"
    return (
        f"at most {float(gbyte_s):g} GB/s of hit KV, {float(brought):,.0f} tokens/s of {parameters.model}; at turns of "
        f"{APPEND_TOKENS} tokens behind {CONTEXT_TOKENS:,} (paper, 64K) {_count(engines, 'prefill engine')} would take "
        f"{float(taken):,.0f}: with agents enough it is {bound}"
    )
