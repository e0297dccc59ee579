"""Blink and the three host-driven servers keep the serving contract."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.baselines.host_driven_api import ApiServer
from testbed.baselines.host_driven_core import EngineCore
from testbed.baselines.host_driven_parameters import HostDrivenParameters
from testbed.baselines.host_driven_worker import Worker
from testbed.blink.frontend import FrontEnd
from testbed.blink.parameters import BlinkParameters
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.machine import Machine
from tests.conformance.serving_contract import ServingContract
from tests.conformance.serving_world import CAPACITY, Candidate, Left


def left_of_blink(machines: Mapping[str, Machine], parameters: BlinkParameters) -> Left:
    front_end, scheduler = machines["front_end"], machines["scheduler"]
    assert isinstance(front_end, FrontEnd)
    assert isinstance(scheduler, PersistentScheduler)
    assert parameters.kv_blocks is not None
    slots = front_end.holdings.slots
    return {
        "requests": front_end.serving,
        "slots": 0 if slots.refreshed_at is None else parameters.slots - slots.free,
        "prompts": front_end.holdings.prompts.held,
        "answers": front_end.holdings.answers.held,
        "batch": len(scheduler.batch),
        "blocks": parameters.kv_blocks - scheduler.kv_blocks_free,
    }


def left_of_host_driven(machines: Mapping[str, Machine], parameters: HostDrivenParameters) -> Left:
    api, core, worker = machines["api"], machines["core"], machines["worker"]
    assert isinstance(api, ApiServer)
    assert isinstance(core, EngineCore)
    assert isinstance(worker, Worker)
    assert parameters.kv_blocks is not None
    return {
        "requests": api.serving + core.requests,
        "work": api.working,
        "batch": len(core.batch),
        "steps": worker.steps,
        "blocks": parameters.kv_blocks - core.kv_blocks_free,
    }


ARENAS = {"input_arena_tokens": 16_384, "token_arena_tokens": 16_384}
BLINK = Candidate("blink", {"slots": CAPACITY, **ARENAS}, "api", left_of_blink)


def host_driven(shape: str) -> Candidate:
    return Candidate("host-driven", {"shape": shape, "queue_limit": CAPACITY}, "clients", left_of_host_driven)


class TestBlink(ServingContract):
    @pytest.fixture
    def candidate(self) -> Candidate:
        return BLINK


class TestVllm(ServingContract):
    @pytest.fixture
    def candidate(self) -> Candidate:
        return host_driven("vllm")


class TestSglang(ServingContract):
    @pytest.fixture
    def candidate(self) -> Candidate:
        return host_driven("sglang")


class TestTensorRtLlm(ServingContract):
    @pytest.fixture
    def candidate(self) -> Candidate:
        return host_driven("tensorrt-llm")


@pytest.fixture(scope="module")
def blink() -> Candidate:
    """The system whose texts all the others have to give."""
    return BLINK
