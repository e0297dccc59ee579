"""Makes the figures of agentic serving from the folds of one system's repeats (`testbed.experiment.agentic_figures`).

NICs and memories have a module of their own (`testbed.experiment.nic_summary`). Formulae: docs/models/metrics.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.experiment.agentic_figures import (
    AccidentFigures,
    AgenticFigures,
    AttentionFigures,
    BatchFigures,
    BlockFigures,
    ChunkFigures,
    CollectiveFigures,
    EngineFigures,
    HopFigures,
    JobTimes,
    PathFigures,
    RoomFigures,
    SideBytes,
    TtftPart,
    TurnsByPath,
)
from testbed.experiment.agentic_results import AgenticResults
from testbed.experiment.hop_bytes import modelled_hops
from testbed.experiment.isolation_figures import isolation_figures
from testbed.experiment.nic_summary import (
    ENGINE_SIDES,
    cnic_figures,
    mean,
    model_figures,
    resource_figures,
    snic_figures,
)
from testbed.metrics.agents import job_time, job_times
from testbed.metrics.attention import PARTS as PROGRESS_PARTS
from testbed.metrics.attention import by_progress, ratio
from testbed.metrics.collectives import ALL_TO_ALL, Operation
from testbed.metrics.forward_batches import Batches, Room
from testbed.metrics.latency import Objectives, goodput
from testbed.metrics.read_paths import Hop
from testbed.metrics.tally import Tally, add, pooled, spread
from testbed.metrics.turn_stages import PARTS, parts_of
from testbed.units import MICROSECOND, MILLISECOND, SECOND

OBJECTIVES = Objectives(ttft_ms=4_000, tpot_ms=50)
"""Paper, App. A.4 and design 1.11."""
READS = {"prefill": "pe1-2", "decode": "de1-2"}
"""The hop by which each side reads from storage."""
WRITE = "persist-write"


def agentic_figures(trials: Sequence[AgenticResults]) -> AgenticFigures:
    """Every part that the trials have something of."""
    return AgenticFigures(
        jct=_jct(trials),
        ttft_split=_ttft_split(trials),
        paths=_paths(trials),
        hops=_hops(trials),
        hop_model=model_figures(trials),
        snic=snic_figures(trials),
        cnic=cnic_figures(trials),
        resources=resource_figures(trials),
        attention=_attention(trials),
        collectives=_collectives(trials),
        isolation=isolation_figures([trial.isolation for trial in trials]),
        blocks=_blocks(trials),
        chunks=_chunks(trials),
        accidents=_accidents(trials),
        batches=_batches(trials),
        buffers=_rooms(trials, "buffer"),
        hbm=_rooms(trials, "hbm"),
        engines=_engines(trials),
    )


def progress_names() -> tuple[str, ...]:
    """Names of the parts of a run's progress."""
    return tuple(f"to_{(part + 1) * 100 // PROGRESS_PARTS}_percent" for part in range(PROGRESS_PARTS))


def _jct(trials: Sequence[AgenticResults]) -> JobTimes | None:
    agents = [agent for trial in trials for agent in trial.agents.agents.values()]
    if not agents:
        return None
    totals = [total / SECOND for trial in trials if (total := job_time(trial.agents)) is not None]
    times = Tally()
    for trial in trials:
        for time in job_times(trial.agents):
            add(times, time)
    return JobTimes(
        total_s=mean(totals),
        least_s=min(totals, default=None),
        most_s=max(totals, default=None),
        agent_s=spread(times, SECOND),
        agents=len(agents),
        failed=sum(agent.outcome == "failed" for agent in agents),
        running=sum(agent.end is None for agent in agents),
        in_objectives=goodput([exchange for trial in trials for exchange in trial.exchanges], OBJECTIVES).share,
    )


def _ttft_split(trials: Sequence[AgenticResults]) -> dict[str, TtftPart] | None:
    turns = [parts for trial in trials for turn in trial.stages.turns.values() if (parts := parts_of(turn)) is not None]
    if not turns:
        return None
    sums = {part: sum(parts[part] for parts in turns) for part in PARTS}
    whole = sum(sums.values())
    return {
        part: TtftPart(share=total / whole if whole else None, mean_ms=total / len(turns) / MILLISECOND)
        for part, total in sums.items()
    }


def _paths(trials: Sequence[AgenticResults]) -> PathFigures | None:
    turns = [placing for trial in trials for placing in trial.paths.turns.values()]
    if not turns:
        return None
    counts = {path: sum(placing.path == path for placing in turns) for path in TurnsByPath.__struct_fields__}
    hit, prompt = sum(placing.hit_tokens for placing in turns), sum(placing.prompt_tokens for placing in turns)
    read = {side: _hop_bytes(trials, hop) for side, hop in READS.items()}
    total = sum(read.values())
    return PathFigures(
        turns=TurnsByPath(**counts),
        hit_tokens=hit,
        prompt_tokens=prompt,
        hit_rate=hit / prompt if prompt else None,
        read_bytes=SideBytes(**read),
        decode_share=read["decode"] / total if total else None,
    )


def _hop_bytes(trials: Sequence[AgenticResults], hop: str) -> int:
    return sum(trial.paths.hops[hop].bytes for trial in trials if hop in trial.paths.hops)


def _hops(trials: Sequence[AgenticResults]) -> dict[str, HopFigures] | None:
    names = sorted({name for trial in trials for name in trial.paths.hops})
    if not names:
        return None
    modelled: dict[str, int] = {}
    known = all(trial.facts.hop_model is not None for trial in trials)
    for trial in trials:
        if trial.facts.hop_model is not None:
            for name, size in modelled_hops(trial.facts.hop_model, trial.turns()).items():
                modelled[name] = modelled.get(name, 0) + size
    found = {}
    for name in names:
        hops: list[Hop] = [trial.paths.hops[name] for trial in trials if name in trial.paths.hops]
        found[name] = HopFigures(
            count=sum(hop.count for hop in hops),
            bytes=sum(hop.bytes for hop in hops),
            blocks=sum(hop.blocks for hop in hops),
            modelled_bytes=modelled.get(name, 0) if known else None,
            time_ms=spread(pooled(hop.times for hop in hops), MILLISECOND),
        )
    return found


def _attention(trials: Sequence[AgenticResults]) -> AttentionFigures | None:
    steps = [trial.attention.steps for trial in trials if trial.attention.steps]
    if not steps:
        return None
    parts = [by_progress(one) for one in steps]
    found = {"whole": mean(ratio(one) for one in steps)}
    found.update({name: mean(part[place] for part in parts) for place, name in enumerate(progress_names())})
    return AttentionFigures(found, sum(len(one) for one in steps))


def _collectives(trials: Sequence[AgenticResults]) -> dict[str, CollectiveFigures] | None:
    by_name: dict[str, list[Operation]] = {}
    for trial in trials:
        for name, operation in trial.collectives.operations.items():
            by_name.setdefault(name, []).append(operation)
            if name in ALL_TO_ALL:
                by_name.setdefault("all_to_all", []).append(operation)
    found = {name: _collective(operations) for name, operations in sorted(by_name.items())}
    return found or None


def _collective(operations: Sequence[Operation]) -> CollectiveFigures:
    times = pooled(operation.times for operation in operations)
    return CollectiveFigures(
        n=times.n,
        small=sum(operation.small for operation in operations),
        bytes=sum(operation.bytes for operation in operations),
        time_us=spread(times, MICROSECOND),
    )


def _blocks(trials: Sequence[AgenticResults]) -> BlockFigures | None:
    if not any(trial.paths.turns or trial.store.chunks or trial.store.rejected for trial in trials):
        return None
    reasons: dict[str, int] = {}
    for trial in trials:
        for reason, count in trial.store.rejected.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return BlockFigures(
        read=sum(_hop_blocks(trials, hop) for hop in READS.values()),
        verified=sum(one.verified for trial in trials for one in trial.batches.batches.values()),
        rejected=sum(reasons.values()),
        reached_engines=sum(trial.store.in_hbm for trial in trials),
        reasons=reasons,
        written=_hop_blocks(trials, WRITE),
    )


def _hop_blocks(trials: Sequence[AgenticResults], hop: str) -> int:
    return sum(trial.paths.hops[hop].blocks for trial in trials if hop in trial.paths.hops)


def _chunks(trials: Sequence[AgenticResults]) -> dict[str, ChunkFigures] | None:
    found = {}
    for name in sorted({name for trial in trials for name in trial.store.chunks}):
        chunks = [trial.store.chunks[name] for trial in trials if name in trial.store.chunks]
        disk = pooled(chunk.disk for chunk in chunks)
        found[name] = ChunkFigures(disk.n, sum(chunk.bytes for chunk in chunks), spread(disk, MILLISECOND))
    return found or None


def _accidents(trials: Sequence[AgenticResults]) -> AccidentFigures | None:
    if not any(trial.paths.turns or trial.store.lost for trial in trials):
        return None
    return AccidentFigures(
        nodes_lost=sum(len(trial.store.lost) for trial in trials),
        turns_replaced=sum(trial.store.replaced for trial in trials),
        turns_given_up=sum(trial.store.given_up for trial in trials),
        lost={node: by for trial in trials for node, by in trial.store.lost.items()},
    )


def _batches(trials: Sequence[AgenticResults]) -> dict[str, BatchFigures] | None:
    found = {}
    for kind in sorted({kind for trial in trials for kind in trial.batches.batches}):
        found[kind] = _batch([trial.batches.batches[kind] for trial in trials if kind in trial.batches.batches])
    return found or None


def _batch(batches: Sequence[Batches]) -> BatchFigures:
    time = sum(one.time for one in batches)
    return BatchFigures(
        tokens=spread(pooled(one.tokens for one in batches)),
        turns=spread(pooled(one.turns for one in batches)),
        cached_tokens=sum(one.cached for one in batches),
        computing=sum(one.computed for one in batches) / time if time else None,
        attention_ms=max(one.longest_attention for one in batches) / MILLISECOND,
        hbm_bytes=max(one.hbm_peak for one in batches),
    )


def _rooms(trials: Sequence[AgenticResults], what: str) -> dict[str, RoomFigures] | None:
    found = {}
    for side in ENGINE_SIDES:
        rooms: list[Room] = [
            room
            for trial in trials
            for name, room in trial.batches.rooms.items()
            if trial.side_of(name) == side and name.rpartition(".")[2].startswith(what)
        ]
        if rooms:
            found[side] = RoomFigures(
                peak_bytes=max(room.peak for room in rooms),
                total_bytes=max(room.total for room in rooms),
                waiting=max(room.waiting for room in rooms),
            )
    return found or None


def _engines(trials: Sequence[AgenticResults]) -> dict[str, EngineFigures] | None:
    found = {}
    for side in ENGINE_SIDES:
        engines = [
            engine for trial in trials for name, engine in trial.batches.engines.items() if trial.side_of(name) == side
        ]
        busy = [engine.busy / engine.interval for engine in engines if engine.interval]
        if engines:
            found[side] = EngineFigures(
                busy=mean(busy),
                least=min(busy, default=None),
                most=max(busy, default=None),
                tokens=sum(engine.tokens for engine in engines),
            )
    return found or None
