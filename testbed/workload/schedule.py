"""A workload, and the requests that it means: who is sent when, with which prompt and how long an answer.

The schedule is a function of the workload and a seed alone; the simulated client and the client process of an
emulation send the very same requests. Arrivals, lengths, prompt texts and sampling seeds draw from streams of their
own, so requests keep their prompts when the rate or the number of requests changes (known fault 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from testbed.serving.requests import Request, Sampling
from testbed.workload.agent_loads import AgentLoad, turns_in
from testbed.workload.arrivals import Arrivals, Poisson
from testbed.workload.lengths import Lengths, ShareGpt
from testbed.workload.prompts import Prompt, PromptSource
from testbed.workload.streams import derived_seed, stream


class SamplingRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How answers are drawn; each request gets a seed of its own."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 1.0
    """0 takes the most likely token."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Draws from the most likely tokens that hold this share."""
    ignore_eos: bool = True
    """True makes every answer as long as its length says, as load generators ask for."""


class SharedPrefixes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prompts that begin alike, as system prompts make them: texts that stand in front of a request's own prompt."""

    texts: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    """How many different ones there are; each request takes one, all equally often."""
    tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    """Length of each in tokens; `lengths` says how long the prompts behind them are."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Share of the requests that have one."""


class WarmUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that count in no latency, by rule and not by eye (serving §3)."""

    requests: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """The first so many by scheduled time."""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Those scheduled less than so many true seconds after the first."""


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the clients ask."""

    requests: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 64
    """How many requests are sent; 0 sends none and serves outside clients until it is stopped (`looplane serve`)."""
    arrivals: Arrivals = Poisson(rate_per_s=1.0)
    """When they are sent."""
    lengths: Lengths = ShareGpt()
    """How long prompts and answers are."""
    shared_prefixes: SharedPrefixes | None = None
    """What prompts have in common, if anything."""
    sampling: SamplingRule = SamplingRule()
    """How answers are drawn."""
    warm_up: WarmUp = WarmUp()
    """Which of them count in no latency."""
    trajectories: AgentLoad | None = None
    """Agents in place of requests, for systems that serve turns: `requests` and what belongs to it then say nothing."""


def read_workload(told: Mapping[str, Any]) -> Workload:
    """The workload in a plan. Raises msgspec.ValidationError."""
    return msgspec.convert(told, Workload)


def requests_in(workload: Workload, seed: int) -> int:
    """How many requests are sent in all, turns of agents included; 0 is open-ended."""
    return workload.requests if workload.trajectories is None else turns_in(workload.trajectories, seed)


def schedule(workload: Workload, seed: int, source: PromptSource) -> list[Request]:
    """The requests in order of their scheduled times."""
    count = workload.requests
    moments = workload.arrivals.moments(count, stream(seed, "arrivals"))
    pairs = workload.lengths.pairs(count, stream(seed, "prompt lengths"), stream(seed, "output lengths"))
    rule = workload.sampling
    requests = []
    for index, (moment, (prompt_length, output_length)) in enumerate(zip(moments, pairs, strict=True)):
        prompt = source.prompt(prompt_length, stream(seed, "prompt", index))
        front = _front(workload.shared_prefixes, seed, index, source)
        if front is not None:
            prompt = source.joined(front, prompt)
        sampling = Sampling(
            temperature=rule.temperature,
            top_p=rule.top_p,
            # 32 bits: what the API's clients and the ring's descriptor both carry.
            seed=derived_seed(seed, "sampling", index) & 0x7FFF_FFFF,
            ignore_eos=rule.ignore_eos,
        )
        requests.append(
            Request(
                name=f"request-{index:05d}",
                prompt=prompt.text,
                max_tokens=output_length,
                sampling=sampling,
                scheduled=moment,
                prompt_tokens=prompt.tokens,
            )
        )
    return requests


def _front(shared: SharedPrefixes | None, seed: int, index: int, source: PromptSource) -> Prompt | None:
    """What stands in front of a request's own prompt."""
    if shared is None:
        return None
    chance = stream(seed, "shared prefix", index)
    if chance.random() >= shared.share:
        return None
    return source.prompt(shared.tokens, stream(seed, "shared prefix text", chance.randrange(shared.texts)))
