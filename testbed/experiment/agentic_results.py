"""What the folds say of agentic serving in one trial; the figures of several are made from these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from testbed.experiment.run_facts import NO_FACTS, SIDES, RunFacts
from testbed.metrics.agents import AgentState
from testbed.metrics.attention import AttentionState
from testbed.metrics.block_store import StoreState
from testbed.metrics.collectives import CollectiveState
from testbed.metrics.fold import Folding
from testbed.metrics.forward_batches import BatchState
from testbed.metrics.isolation import IsolationState
from testbed.metrics.outcome import StoryState
from testbed.metrics.read_paths import PathState, Placing
from testbed.metrics.requests import Exchange
from testbed.metrics.resource_use import UseState, kind_of, node_of
from testbed.metrics.turn_stages import StageState

NEEDED = ("agents", "read_paths", "resources", "attention", "collectives", "isolation", "store", "stages", "batches")
"""The folds that these are made of."""


class AgenticResults(NamedTuple):
    """One trial."""

    roles: dict[str, str]
    """By node: of the plan, or as the nodes said themselves."""
    facts: RunFacts
    exchanges: tuple[Exchange, ...]
    agents: AgentState
    paths: PathState
    use: UseState
    attention: AttentionState
    collectives: CollectiveState
    isolation: IsolationState
    store: StoreState
    stages: StageState
    batches: BatchState

    def turns(self) -> Iterator[tuple[Placing, int]]:
        """Each placed turn with a read path, and the tokens of its answer."""
        answers = {exchange.name: exchange.received for exchange in self.exchanges}
        for name, placing in self.paths.turns.items():
            if placing.path and placing.prefill_node:
                yield placing, answers.get(name, 0)

    def side_of(self, place: str) -> str:
        """pe, de or storage, for a resource, port or node; empty for any other."""
        return SIDES.get(self.roles.get(node_of(place), ""), "")

    def resources(self, side: str, kind: str) -> list[str]:
        """All resources of that kind on that side, those that carried nothing too where the plan is known."""
        known = {*self.facts.rates, *self.use.resources}
        return sorted(name for name in known if kind_of(name) == kind and self.side_of(name) == side)


def agentic_results(
    folding: Folding, story: StoryState, exchanges: tuple[Exchange, ...], facts: RunFacts = NO_FACTS
) -> AgenticResults:
    """The results of a folding that has at least the folds of `NEEDED`."""
    return AgenticResults(
        roles=facts.roles or dict(story.nodes),
        facts=facts,
        exchanges=exchanges,
        agents=folding.result("agents"),
        paths=folding.result("read_paths"),
        use=folding.result("resources"),
        attention=folding.result("attention"),
        collectives=folding.result("collectives"),
        isolation=folding.result("isolation"),
        store=folding.result("store"),
        stages=folding.result("stages"),
        batches=folding.result("batches"),
    )
