"""What a run asks of a bench, what a bench has, and the sentence that says what is missing. Pure.

A need is one word: an ability (`emulate`), a measured one with its amount (`memory:2048`, in MiB), a real part by its
name on the host (`interface:enp1s0f0`, `rdma:mlx5_0`), or a tag that somebody gave the bench (`lab-2`). A simulation
needs nothing but a worker that simulates; what an emulation needs follows from its spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.experiment.spec import Spec

LONGEST = 16
"""Needs that one request may name."""
_TAG = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,39}\Z")
_MEMORY = re.compile(r"\Amemory:([1-9][0-9]{0,7})\Z")
_PART = re.compile(r"\A(interface|rdma):[A-Za-z0-9_.-]{1,63}\Z")
NODES_MIB = 1024
"""What nodes and NICs of a plan take beside their neighbours: some 80 MiB each were measured (docs/models)."""


class Ability(StrEnum):
    """What a bench may be able to do; it finds out by itself."""

    SIMULATE = "simulate"
    EMULATE = "emulate"
    """Mininet, privileged runner and kernel are there."""
    CONTAINERS = "containers"
    """Nodes can be containers."""


@dataclass(frozen=True)
class Offer:
    """What a bench has."""

    abilities: Mapping[str, object] = field(default_factory=dict)
    """By ability or part: True, or the sentence that says why not."""
    tags: frozenset[str] = frozenset()
    memory_mib: int | None = None
    """None: not known, and then not asked."""


def base_need(*, emulation: bool) -> str:
    """What every run of a backend needs."""
    return Ability.EMULATE.value if emulation else Ability.SIMULATE.value


def needs_of_spec(spec: Spec) -> tuple[str, ...]:
    """What an emulation of `spec` needs beyond `emulate`."""
    needs = [Ability.CONTAINERS.value] if spec.nodes == "docker" else []
    needs += [f"interface:{lent.interface}" for _, lent in spec.hardware.interfaces()]
    needs += [f"rdma:{rnic.device}" for rnic in spec.hardware.rnics.values()]
    neighbours = sum(one.threads * one.working_set_mib for one in spec.neighbours.values())
    if neighbours:
        needs.append(f"memory:{NODES_MIB + neighbours}")
    return tuple(dict.fromkeys(needs))


def read_needs(words: Iterable[str]) -> list[str]:
    """Needs as somebody asked for them, each once. Raises ValueError with the word and what is allowed."""
    told = list(dict.fromkeys(word.strip() for word in words if word.strip()))
    if len(told) > LONGEST:
        raise ValueError(f"{len(told)} needs: at most {LONGEST}")
    for word in told:
        if not (_TAG.match(word) or _MEMORY.match(word) or _PART.match(word)):
            raise ValueError(
                f"{word[:60]!r}: a bench's tag (lower-case letters, digits and . _ -), one of "
                f"{', '.join(Ability)}, memory:MIB, interface:NAME or rdma:NAME"
            )
    return told


def read_tags(words: Iterable[str]) -> list[str]:
    """A bench's tags, each once. Raises ValueError with the word and what is allowed."""
    told = list(dict.fromkeys(word.strip().lower() for word in words if word.strip()))
    for word in told:
        if not _TAG.match(word) or word in set(Ability):
            raise ValueError(
                f"{word[:60]!r}: a tag has up to 40 lower-case letters, digits and . _ -, and is none of "
                f"{', '.join(Ability)}"
            )
    if len(told) > LONGEST:
        raise ValueError(f"{len(told)} tags: at most {LONGEST}")
    return told


def lacking(needs: Iterable[str], offer: Offer) -> list[str]:
    """What of `needs` the bench has not, each as a few words; empty if the run fits."""
    return [words for need in needs if (words := _lacks(need, offer))]


def _lacks(need: str, offer: Offer) -> str:
    memory = _MEMORY.match(need)
    if memory:
        if offer.memory_mib is None or offer.memory_mib >= int(memory[1]):
            return ""
        return f"{int(memory[1])} MiB of memory (it has {offer.memory_mib})"
    if need in offer.tags:
        return ""
    found = offer.abilities.get(need)
    if found is True:
        return ""
    if isinstance(found, str) and found:
        return f"{need} ({found})"
    if need in set(Ability):
        return need
    kind, _, name = need.partition(":")
    return f"the {kind} {name}" if name else f"the tag {need}"
