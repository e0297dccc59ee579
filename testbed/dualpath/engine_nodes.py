"""The machines that make a prefill or a decode node: its leader and its engines, with the memory shared out among them.

Mail, traffic manager and storage client stand beside them and are made by whoever assembles the node. Knows no plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.decode_engine import DecodeEngine
from testbed.dualpath.decode_leader import DecodeLeader
from testbed.dualpath.node_memory import BUFFER, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.persisting import Staging
from testbed.dualpath.prefill_engine import PrefillEngine
from testbed.dualpath.prefill_leader import PrefillLeader
from testbed.dualpath.rounds import Rounds
from testbed.machine import Machine
from testbed.serving.step_times import StepTimes

STAGING_SHARE = 16
"""Of the DE buffer's pages, one in so many is kept for persisting."""
MOST_STAGING = 16
"""Pages of one engine for it, at most."""


def prefill_machines(
    memory: NodeMemory,
    parameters: DualPathParameters,
    *,
    shape: BlockShape,
    times: StepTimes,
    scheduler: str,
    group: Sequence[str] = (),
) -> tuple[Machine, ...]:
    """Leader and engines of a prefill node; `scheduler` is the node of the central scheduler, `group` are the nodes
    whose engines step together, by default this one.
    """
    group = group or (memory.node,)
    first = group.index(memory.node) * parameters.engines_per_node
    engines = (
        PrefillEngine(memory, engine, parameters, shape=shape, times=times, scheduler=scheduler, place=first + engine)
        for engine in range(parameters.engines_per_node)
    )
    leader = PrefillLeader(memory, parameters, shape=shape, scheduler=scheduler)
    return (leader, *engines, *_rounds(memory.node, parameters, group, attention=True))


def decode_machines(
    memory: NodeMemory,
    parameters: DualPathParameters,
    *,
    shape: BlockShape,
    times: StepTimes,
    scheduler: str,
    group: Sequence[str] = (),
) -> tuple[Machine, ...]:
    """The same of a decode node. Raises ValueError for a buffer that has no page for a turn."""
    pages = memory.pages(BUFFER, shape.layers, shape, parameters.decode_buffer_bytes)
    each = staging_pages(parameters, pages)
    first = pages - each * parameters.engines_per_node
    if first < 1:
        raise ValueError(f"decode_buffer_bytes holds {pages} blocks, of which {pages - first} are kept for persisting")
    base = memory.address(memory.node, BUFFER)
    group = group or (memory.node,)
    place = group.index(memory.node) * parameters.engines_per_node
    engines = tuple(
        DecodeEngine(
            memory,
            engine,
            parameters,
            shape=shape,
            times=times,
            staging=Staging(BUFFER, first + engine * each, each, shape.full_bytes, base),
            scheduler=scheduler,
            place=place + engine,
        )
        for engine in range(parameters.engines_per_node)
    )
    leader = DecodeLeader(memory, parameters, shape=shape, scheduler=scheduler, staging_pages=pages - first)
    return (leader, *engines, *_rounds(memory.node, parameters, group, attention=False))


def _rounds(node: str, parameters: DualPathParameters, group: Sequence[str], *, attention: bool) -> tuple[Machine, ...]:
    if not parameters.steps_together:
        return ()
    return (Rounds(node, group, parameters.engines_per_node, attention=attention),)


def staging_pages(parameters: DualPathParameters, pages: int) -> int:
    """Pages of the buffer that each decode engine has for persisting."""
    if not parameters.persist or parameters.read_path == "bypass":
        return 0
    return max(1, min(MOST_STAGING, pages // (STAGING_SHARE * parameters.engines_per_node)))
