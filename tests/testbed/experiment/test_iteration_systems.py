"""The loop over arrays beside the machines themselves: every first and last token of every request, to the poll."""

import json

import msgspec
import numpy as np
import pytest

from testbed.baselines.host_driven_parameters import HostDrivenParameters
from testbed.blink.parameters import BlinkParameters
from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.iteration_systems import disturbance, iterated
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.spec import Spec
from testbed.serving.host_work import Contention
from testbed.serving.iterated_work import QUIET
from testbed.workload.streams import stream

KINDS = {
    "blink": {"kind": "blink"},
    "vllm": {"kind": "host-driven", "shape": "vllm"},
    "vllm-late": {"kind": "host-driven", "shape": "vllm", "hidden_us": 12_000.0},
    "sglang": {"kind": "host-driven", "shape": "sglang"},
    "sglang-late": {"kind": "host-driven", "shape": "sglang", "hidden_us": 12_000.0},
    "tensorrt-llm": {"kind": "host-driven", "shape": "tensorrt-llm"},
}
ALLOWED = {"blink": BlinkParameters().poll_interval_max, "host-driven": 1_500_000}
"""What the loop leaves out: when the token reader polls; that an API server tokenises the longest prompt (1,500 tokens)
while a token waits for its text."""


def spec_of(name, seed):
    row = {"max_batch": 4, "kv_blocks": 180, **KINDS[name]}
    kind = row.pop("kind")
    parameters = msgspec.to_builtins(msgspec.convert(row, SYSTEMS[kind].parameters))
    told = {
        "name": "beside-the-machines",
        "title": "the loop over arrays beside the machines",
        "seed": seed,
        "systems": {name: {"kind": kind, "parameters": parameters}},
        "workload": {
            "requests": 14,
            "arrivals": {"kind": "poisson", "rate_per_s": 12.0},
            "lengths": {
                "kind": "uniform", "prompt_low": 16, "prompt_high": 1_500, "output_low": 1, "output_high": 60,
            },
        },
    }  # fmt: skip
    return msgspec.convert(told, Spec)


def by_the_machines(folder):
    sent, first, last = {}, {}, {}
    for line in (folder.events / "client0.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "request.sent":
            sent[event["name"]] = event["t"], event["prompt_tokens"], event["max_tokens"]
        elif event["type"] == "token.received":
            first.setdefault(event["name"], event["t"])
            last[event["name"]] = event["t"]
    names = sorted(sent)
    columns = (*zip(*(sent[name] for name in names), strict=True), [first[n] for n in names], [last[n] for n in names])
    return (np.array(column, np.int64) for column in columns)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_first_and_last_token_comes_when_the_machines_have_it(name, seed, tmp_path):
    spec = spec_of(name, seed)
    prepared = prepare(spec, tmp_path, clock="simulated")
    assert simulate(prepared.plans[0], prepared.folder).outcome == "passed"
    sent, prompts, outputs, first, last = by_the_machines(prepared.folder)
    system = spec.systems[name]
    found = iterated(msgspec.convert(system.parameters, SYSTEMS[system.kind].parameters)).serve(sent, prompts, outputs)
    allowed = ALLOWED[system.kind]
    assert np.abs(found.first - first).max() < allowed
    assert np.abs(found.last - last).max() < allowed
    ours, theirs = (found.first - sent).mean(), (first - sent).mean()
    assert ours == pytest.approx(theirs, rel=0.02)
    assert (found.last - found.first).sum() == pytest.approx((last - first).sum(), rel=0.01)
    assert np.median(np.abs(found.last - last)) < 300_000
    assert np.median(last - first) > 10 * allowed, "the run is long enough for an error a step to show"


def test_contention_becomes_arrays_in_nanoseconds():
    measured = Contention(threads=12, slowdown=1.5, stalls_per_ms=0.25, stall_ms=(1.0, 4.0), wake_ms=(0.0, 0.5))
    made = disturbance(measured, stream(1, "test"))
    assert (made.slowdown, made.stalls_per_ns) == (1.5, 0.25e-6)
    assert (made.stall.tolist(), made.wake.tolist()) == ([1e6, 4e6], [0.0, 5e5])
    assert disturbance(None, stream(1, "test")) is QUIET
    assert disturbance(Contention(), stream(1, "test")) is QUIET


def test_the_context_that_the_model_has_bounds_a_prompt():
    system = iterated(HostDrivenParameters(model="llama-3-8b"))
    one = np.array([1], np.int64)
    with pytest.raises(ValueError, match="larger than"):
        system.serve(one, one * 8_200, one)
