"""A small DualPath run told event by event, for tests: agents, placements, hops, batches, collectives, storage.

Bytes and resources of hops are those of the table of hops, so that the hop model can be held against them.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.dualpath.read_paths import ENDS, TurnShape, crossed, hop_blocks
from testbed.events import kv_events, schema
from testbed.events.log import Record
from testbed.units import MILLISECOND
from tests.testbed.metrics.stories import MS, Story

NODES = {
    "client0": "client", "sched0": "scheduler", "pe0": "prefill", "pe1": "prefill", "de0": "decode",
    "storage0": "storage",
}  # fmt: skip
BLOCK_TOKENS = 64
FULL_BYTES = 64 * 23_640
LAYERS = 3


def begin(nodes: Mapping[str, str] = NODES, clock: str = "simulated", dilation: float = 1.0) -> Story:
    """A run whose nodes are ready."""
    story = Story()
    for name, role in nodes.items():
        story.at(0, name, schema.NodeReady(role, 0))
    return story.at(0, "bench", schema.RunStarted("ours", clock, dilation, 1, 7, 4, tuple(nodes)))


def hop(
    story: Story, name: str, turn: str, t_ms: float, lasting_ms: float, blocks: int, ports: Mapping[str, str]
) -> None:
    """One transfer for each layer of a hop of Layer Blocks, one for any other, the last of which ends at `t_ms`."""
    source, target = (ports[end] for end in ENDS[name])
    layered = name not in {"pe1-2", "de1-2", "pe8-9", "de6-7", "persist-copy", "persist-write", "replicate"}
    for layer in range(LAYERS) if layered else (-1,):
        end = t_ms if layer < 0 else t_ms - (LAYERS - 1 - layer) * lasting_ms
        size = blocks * FULL_BYTES // (LAYERS if layered else 1)
        began = round((end - lasting_ms) * MS)
        transfer = kv_events.TransferFinished(
            turn, name, layer, source, target, size, blocks, began, crossed(name, source, target)
        )
        story.at(end, source.partition(".")[0], transfer)


def turn(
    story: Story, name: str, t_ms: float, *, path: str = "prefill", pe: str = "pe0", hit_blocks: int = 10,
    append: int = 60, answer: int = 5,
) -> float:  # fmt: skip
    """One turn from its sending at `t_ms` to its end, which is returned; scheduling takes 2 ms, allocation 1,
    reading 4, prefill 8, the rest 3; then a token every 5 ms."""
    prompt = hit_blocks * BLOCK_TOKENS + append
    here = hit_blocks if path == "prefill" else 0
    ports = {"pe.cnic": f"{pe}.cnic0", "pe.snic": f"{pe}.snic0", "de.cnic": "de0.cnic0", "de.snic": "de0.snic0",
             "storage.snic": "storage0.snic0"}  # fmt: skip
    stage = kv_events.TurnStage
    story.at(t_ms, "client0", schema.RequestSent(name, round(t_ms * MS), 0, prompt, answer))
    story.at(t_ms + 1, "sched0", stage(name, "queued"))
    placed = kv_events.TurnPlaced(name, pe, 0, "de0", 0, hit_blocks * BLOCK_TOKENS, prompt, MILLISECOND)
    chosen = kv_events.PathChosen(name, path if hit_blocks else "none", here, hit_blocks - here, 100, 200)
    story.at(t_ms + 2, "sched0", placed, chosen, stage(name, "placed"))
    story.at(t_ms + 3, pe, stage(name, "allocated"), kv_events.BufferMeasured("buffer", FULL_BYTES, 9 * FULL_BYTES, 1))
    story.at(t_ms + 7, pe, stage(name, "ready"), kv_events.ReadQueueMeasured(0))
    whole = {"t": t_ms + 15, "first": t_ms + 18}
    persisted = (prompt + answer - 1) // BLOCK_TOKENS - hit_blocks
    blocks = hop_blocks(TurnShape(prompt, hit_blocks, here, persisted), BLOCK_TOKENS)
    moments = {"pe1-2": (7, 4), "de1-2": (7, 4), "pe3-4": (14, 1), "de3-5": (14, 1), "pe5-7": (15, 1),
               "de-miss": (15, 1), "pe8-9": (17, 1), "de6-7": (17, 1), "persist-copy": (20, 1),
               "persist-write": (22, 2)}  # fmt: skip
    for hop_name, count in blocks.items():
        after, lasting = moments[hop_name]
        hop(story, hop_name, name, t_ms + after, lasting, count, ports)
    story.at(
        whole["t"], pe,
        kv_events.ForwardFinished(0, "prefill", (name,), append, hit_blocks * 64, round((t_ms + 7) * MS), 3 * MS,
                                  6 * MS, 4 * FULL_BYTES, verified=hit_blocks * LAYERS),
        kv_events.AttentionMeasured(1, (3 * MS, MS)),
        kv_events.CollectiveFinished("dispatch", 0, 1, 65_536, 16, 20_000),
        kv_events.CollectiveFinished("combine", 0, 1, 4_096, 1, 9_000),
        kv_events.EngineMeasured(0, 10 * MS, 6 * MS, 1, append),
        stage(name, "prefilled"),
    )  # fmt: skip
    story.at(t_ms + 7, "storage0", kv_events.ChunkServed("read", "ab", 1, hit_blocks * FULL_BYTES, 3 * MS))
    story.at(
        t_ms + 17, "de0", stage(name, "decoding"), kv_events.BufferMeasured("hbm0", 2 * FULL_BYTES, FULL_BYTES * 8, 0)
    )
    for index in range(answer):
        story.at(whole["first"] + 5 * index, "client0", schema.TokenReceived(name, index))
    end = whole["first"] + 5 * (answer - 1)
    decode = kv_events.ForwardFinished(0, "decode", (name,), 1, prompt, round((end - 5) * MS), 0, 4 * MS, FULL_BYTES)
    story.at(end, "de0", decode, stage(name, "ended"))
    story.at(end, "client0", schema.RequestFinished(name, answer, "length"))
    return end


def finish(story: Story, t_ms: float) -> list[Record]:
    """The run's last words, and all records."""
    for name in NODES:
        story.at(t_ms, name, schema.NodeStopped(0))
    return story.at(t_ms, "bench", schema.RunFinished("passed")).records()


def agentic_run(agents: int = 2, turns: int = 3, *, both_paths: bool = True) -> list[Record]:
    """Agents that start together, one turn after another, with paths and prefill nodes in turn."""
    story = begin()
    last = 0.0
    for agent in range(agents):
        t = 10.0
        story.at(t, "client0", kv_events.AgentStarted(f"a{agent:04}", turns, 10 * MS))
        for number in range(turns):
            path = "decode" if both_paths and (agent + number) % 2 else "prefill"
            t = turn(story, f"a{agent:04}.t{number:03}", t, path=path, pe=f"pe{agent % 2}", hit_blocks=10 * number)
        story.at(t, "client0", kv_events.AgentFinished(f"a{agent:04}", "finished", turns, round((t - 10) * MS)))
        last = max(last, t)
    story.at(15, "storage0", kv_events.BlockRejected("ab", "storage0", "its checksum does not fit its bytes"))
    story.at(30, "pe0", kv_events.NodeLost("storage9", "pe0"), kv_events.TurnReplaced("a0000.t000", "lost", True))
    return finish(story, last + 20)
