"""Agents as a workload: what a spec says, and what follows from a seed."""

from __future__ import annotations

import msgspec
import pytest

from testbed.units import SECOND
from testbed.workload.agent_loads import AgentLoad, FileTrajectories, FixedTrajectories, TableTrajectories, turns_in
from testbed.workload.arrivals import Poisson
from testbed.workload.schedule import read_workload, requests_in
from testbed.workload.trajectories import facts, of_lengths


def test_offline_agents_start_together() -> None:
    assert FixedTrajectories(agents=3).starts(1) == [0, 0, 0]


def test_online_agents_arrive_at_a_rate() -> None:
    starts = FixedTrajectories(agents=40, arrivals=Poisson(0.5)).starts(1)
    assert starts == sorted(starts)
    assert starts[-1] == 80 * SECOND


def test_known_fault_17_the_same_seed_asks_the_same_at_every_rate() -> None:
    loads: list[AgentLoad] = [
        TableTrajectories(agents=6, found_trajectories=3, max_tokens=2_000, turns=5, arrivals=arrivals)
        for arrivals in (None, Poisson(0.1), Poisson(9.0))
    ]
    told = [load.trajectories(7) for load in loads]
    assert told[0] == told[1] == told[2]
    assert len({tuple(load.starts(7)) for load in loads}) == 3
    assert loads[0].trajectories(8) != told[0]


def test_fixed_agents_are_alike_and_share_no_token() -> None:
    made = FixedTrajectories(agents=4, turns=3, first=100, append=10, generate=5).trajectories(1)
    assert {facts(one).total for one in made} == {100 + 10 + 10 + 15}
    assert len({here.append[0].stream for one in made for here in one.rounds}) == 4


def test_a_workload_of_agents_says_how_many_requests_it_is() -> None:
    workload = read_workload({"trajectories": {"kind": "fixed", "agents": 4, "turns": 3}})
    assert requests_in(workload, 1) == 12
    assert requests_in(read_workload({"requests": 9}), 1) == 9


@pytest.mark.parametrize("agents", [1, 3, 50])
def test_turns_are_counted_without_making_them(agents: int) -> None:
    loads: list[AgentLoad] = [
        FixedTrajectories(agents=agents, turns=3),
        TableTrajectories(agents=agents, found_trajectories=3, max_tokens=2_000, turns=5),
        TableTrajectories(agents=agents, found_trajectories=7, max_tokens=4),
        FileTrajectories(agents=agents, path="x", format="mooncake", input="delta").filled(
            [of_lengths(1, [(5, 5)] * 4), of_lengths(2, [(7, 2)])]
        ),
    ]
    for load in loads:
        assert turns_in(load, 1) == sum(len(one.rounds) for one in load.trajectories(1))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"kind": "fixed", "agents": 0}, "agents"),
        ({"kind": "fixed", "turns": 0}, "turns"),
        ({"kind": "fixed", "max_tokens": 7}, "max_tokens"),
        ({"kind": "table", "row": "128k"}, "row"),
        ({"kind": "poem"}, "poem"),
        ({"agents": 3}, "kind"),
    ],
)
def test_a_wrong_load_is_named(wrong: dict[str, object], where: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=where):
        read_workload({"trajectories": wrong})
