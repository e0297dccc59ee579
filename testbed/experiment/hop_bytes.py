"""What the hop model says that a run's placed turns sent, for each hop and for each port of the engines' nodes.

The model itself is `testbed.dualpath.read_paths` (design dualpath 1.6); here it is asked for the turns of a log. How a
turn was cut into chunks is not in the log, so each is taken to have been computed in one batch; the blocks at the cuts
are what measured bytes may be more. Engine i sends by cnic i and reads by snic i mod s, as nodes are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from testbed.dualpath.read_paths import ENDS, DataPath, TurnShape, crossed, hop_blocks
from testbed.experiment.run_facts import HopModel
from testbed.metrics.read_paths import Placing


def modelled_hops(model: HopModel, turns: Iterable[tuple[Placing, int]]) -> dict[str, int]:
    """True bytes of each hop. `turns` are placings with the tokens of their answers."""
    total: dict[str, int] = {}
    for placing, answer in turns:
        for hop, blocks in _blocks(model, placing, answer).items():
            total[hop] = total.get(hop, 0) + blocks * model.full_bytes
    return total


def modelled_ports(model: HopModel, turns: Iterable[tuple[Placing, int]]) -> dict[str, int]:
    """True bytes of each resource of the engines' nodes, except memories, by name as `transfer.finished` has it."""
    total: dict[str, int] = {}
    for placing, answer in turns:
        ports = _ports(model, placing)
        for hop, blocks in _blocks(model, placing, answer).items():
            for resource in _resources(hop, ports, model.path):
                total[resource] = total.get(resource, 0) + blocks * model.full_bytes
    return total


def _blocks(model: HopModel, placing: Placing, answer: int) -> Mapping[str, int]:
    hit = placing.prefill_blocks + placing.decode_blocks
    # The last token of an answer is sent and never computed with, so it has no KV.
    held = (placing.prompt_tokens + max(0, answer - 1)) // model.block_tokens
    turn = TurnShape(
        prompt_tokens=placing.prompt_tokens,
        hit_blocks=hit,
        prefill_blocks=placing.prefill_blocks,
        persisted_blocks=max(0, held - hit) if model.persist else 0,
    )
    return hop_blocks(turn, model.block_tokens, model.landing, model.replicas)


def _ports(model: HopModel, placing: Placing) -> dict[str, str]:
    prefill, decode = placing.prefill_engine, placing.decode_engine
    return {
        "pe.cnic": f"{placing.prefill_node}.cnic{prefill}",
        "pe.snic": f"{placing.prefill_node}.snic{prefill % model.storage_nics}",
        "de.cnic": f"{placing.decode_node}.cnic{decode}",
        "de.snic": f"{placing.decode_node}.snic{decode % model.storage_nics}",
    }


def _resources(hop: str, ports: Mapping[str, str], path: DataPath) -> Iterator[str]:
    source, target = ENDS[hop]
    # Which storage node serves a block is not in the model; its ports get a name of their own and are left out.
    for resource in crossed(hop, ports.get(source, "storage"), ports.get(target, "storage"), path):
        if not resource.startswith("storage") and not resource.endswith((".dram", ".cxl")):
            yield resource
