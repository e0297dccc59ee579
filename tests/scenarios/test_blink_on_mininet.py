"""Blink served end to end on an emulated network: every request takes all thirteen steps, and nothing is lost."""

import json

import pytest
import whole_run

pytestmark = pytest.mark.root
KINDS = ["namespace", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.mark.parametrize("kind", KINDS)
def test_small_experiment(prepare_run, start_bench, kind):
    folder = prepare_run("small.toml", f"nodes={kind}")
    bench = start_bench(folder)
    assert bench.end() == 0, bench.said()
    steps = whole_run.steps_of_requests(folder)
    assert len(steps) == 8
    assert set(map(tuple, steps.values())) == {tuple(range(1, 14))}
    finished = {event.name: event for _, event in whole_run.events_of(folder, "request.finished")}
    assert set(finished) == set(steps)
    assert not whole_run.events_of(folder, "request.failed")
    served = {event.request: event.tokens for _, event in whole_run.events_of(folder, "request.served")}
    assert sorted(served.values()) == sorted(event.tokens for event in finished.values())
    received = dict.fromkeys(finished, 0)
    for _, event in whole_run.events_of(folder, "token.received"):
        assert event.index == received[event.name], "tokens arrive in order and none twice"
        received[event.name] += event.count
    assert received == {name: event.tokens for name, event in finished.items()}


def test_the_same_requests_get_the_same_tokens_under_both_clocks(prepare_run, start_bench, simulate_run):
    """Timing differs, what is said does not: the machines are the same."""
    wall = prepare_run("small.toml", "nodes=namespace")
    bench = start_bench(wall)
    assert bench.end() == 0, bench.said()
    simulated = simulate_run("small.toml")
    assert said(wall) == said(simulated)


def said(folder):
    """The text of each request's answer, by name."""
    names = {event.request: event.name for _, event in whole_run.events_of(folder, "request.arrived")}
    texts = dict.fromkeys(names.values(), "")
    for _, event in whole_run.events_of(folder, "tokens.detokenised"):
        texts[names[event.request]] += event.text
    assert all(texts.values())
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_host_is_not_in_the_path(prepare_run, start_bench, kind):
    """After `host.provisioned` every process of the host's software is stopped, and 64 requests stream to the end."""
    folder = prepare_run(
        "small.toml", f"nodes={kind}", "workload.requests=64", "workload.arrivals.rate_per_s=16", "time_limit_s=120"
    )
    bench = start_bench(folder)
    bench.wait_for("host0.ready")
    ((node, _),) = whole_run.events_of(folder, "host.provisioned")
    assert node == "host0"
    stopped = bench.stop_node("host0")
    assert stopped
    assert not whole_run.events_of(folder, "request.sent"), "the host must be stopped before anything is served"
    assert bench.end() == 0, bench.said()
    finished = [r.t for r in whole_run.records(folder, "client0") if whole_run.tag(r) == "request.finished"]
    assert len(finished) == 64
    assert not whole_run.events_of(folder, "request.failed")
    alive = [record for record in whole_run.records(folder, "host0") if 0 < record.t < max(finished)]
    assert not alive, "nothing may have set the host going again"


def test_control_files(prepare_run, start_bench):
    """What the nodes leave for one another, and that the bench says how it went."""
    folder = prepare_run("small.toml", "nodes=namespace", "workload.requests=1")
    bench = start_bench(folder)
    assert bench.end() == 0, bench.said()
    control = folder / "control"
    provisioned = json.loads((control / "host0.provisioned").read_bytes())
    assert provisioned["model"] == "llama-3-8b"
    assert provisioned["graphs"] >= 650
    assert {path.stem for path in control.glob("*.ready")} == {"client0", "dpu0", "gpu0", "host0"}
