"""Placements whose every node has an emulator, on the bench: the answers are those of the simulation to the letter."""

from __future__ import annotations

import pytest
import whole_run

pytestmark = [pytest.mark.root, pytest.mark.soak]


def said(folder):
    """The text of each request's answer, by name."""
    names = {event.request: event.name for _, event in whole_run.events_of(folder, "request.arrived")}
    texts = dict.fromkeys(names.values(), "")
    for _, event in whole_run.events_of(folder, "tokens.detokenised"):
        texts[names[event.request]] += event.text
    return texts


@pytest.mark.parametrize("point", ["blink", "lynx", "tensorrt-llm"])
def test_a_point_with_emulators_answers_as_simulated(prepare_run, start_bench, simulate_run, point, soak):
    if not soak:
        pytest.skip("a whole run for each point: --soak")
    system = f'systems={{placed={{kind="placed",point="{point}"}}}}'
    words = (system, "expect={}", "workload.requests=6", "nodes=namespace")
    folder = prepare_run("small.toml", *words)
    bench = start_bench(folder)
    assert bench.end() == 0, bench.said()
    assert not whole_run.events_of(folder, "request.failed")
    assert len(said(folder)) == 6
    assert said(folder) == said(simulate_run("small.toml", *words))
