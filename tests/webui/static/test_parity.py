"""The page's folds against testbed.metrics, on the log of a whole run: one definition, two languages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.events.ordering import merge
from testbed.events.schema import TokensDetokenised
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import spec_from_tables
from testbed.metrics.fold import Folding
from testbed.metrics.spans import request_spans, slot_spans, step_table
from testbed.metrics.table import FOLDS
from testbed.metrics.throughput import served
from testbed.metrics.timeline import SlotSpan
from webui.runs.page import LEVELS, LIMITS

RECORDINGS = Path(__file__).resolve().parents[3] / "fixtures" / "recordings"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)")


def folded_by_the_page(events: Path, tables: Path) -> dict[str, Any]:
    tables.write_text(json.dumps({"levels": LEVELS, "limits": LIMITS}))
    script = Path(__file__).with_name("fold_log.mjs")
    words = ["node", str(script), str(events), str(tables)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def theirs(recorded_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folded_by_the_page(recorded_run / "events", tmp_path_factory.mktemp("tables") / "tables.json")


@pytest.fixture(scope="module")
def ours(recorded_run: Path) -> Folding:
    return Folding(FOLDS).take_all(merge(recorded_run / "events"))


def test_every_event_is_folded(recorded_run: Path, theirs: dict[str, Any]) -> None:
    assert theirs["events"] == sum(1 for _ in merge(recorded_run / "events"))


@pytest.mark.parametrize("metric", ["ttft", "ttst", "itl", "tpot"])
def test_latencies(ours: Folding, theirs: dict[str, Any], metric: str) -> None:
    expected = getattr(ours.result("latencies"), f"{metric}_ms")
    found = theirs["figures"][metric]
    assert found["n"] == expected.n > 0
    for name in ("mean", "p50", "p90", "p99", "p999", "worst"):
        want = getattr(expected, name)
        if want is None:
            assert found[name] is None, name
        else:
            assert found[name] == pytest.approx(want, rel=1e-9, abs=1e-6), name


def test_throughput(ours: Folding, theirs: dict[str, Any]) -> None:
    exchanges = ours.result("exchanges")
    assert theirs["served"] == pytest.approx(served(exchanges).tokens_per_s, rel=1e-9)
    assert theirs["tokens"] == sum(exchange.received for exchange in exchanges)


def test_ring(ours: Folding, theirs: dict[str, Any]) -> None:
    view = ours.result("ring")
    assert theirs["ring"]["moves"] == view.moves > 0
    assert theirs["ring"]["gaps"] == [list(place) for place in view.gaps]
    expected = [[one.ring, one.slot, one.state, one.incarnation, one.request, one.moved] for one in view.slots]
    assert theirs["ring"]["slots"] == expected


def without_names(events: Path, folder: Path) -> Path:
    """A copy of a log as it was before the front end named the ring."""
    shutil.copytree(events, folder)
    told = folder / "dpu0.jsonl"
    text, many = re.subn(r',"ring":"gpu\d"', "", told.read_text())
    assert many
    told.write_text(text)
    return folder


def most_at_once(spans: Sequence[SlotSpan]) -> int:
    """Slots that are held at the fullest moment; what ends as another begins is not held any more."""
    held = most = 0
    for _, change in sorted([(one.start, 1) for one in spans] + [(one.end or 0, -1) for one in spans]):
        held += change
        most = max(most, held)
    return most


@pytest.mark.parametrize("told", [True, False])
def test_two_rings(two_rings: Path, tmp_path: Path, told: bool) -> None:
    events = two_rings if told else without_names(two_rings, tmp_path / "events")
    ours = Folding(FOLDS).take_all(merge(events))
    theirs = folded_by_the_page(events, tmp_path / "tables.json")
    test_ring(ours, theirs)
    test_the_map_is_empty_after_a_run(ours, theirs)
    same_lanes(ours, theirs)
    assert {lane["ring"] for lane in theirs["lanes"]} == {"gpu0", "gpu1"}
    spans = slot_spans(ours.result("timeline"))
    tops = {ring: most_at_once([span for span in spans if span.ring == ring]) for ring in ("gpu0", "gpu1")}
    assert theirs["tops"] == tops
    assert theirs["fullest"]["taken"] == most_at_once(spans) > max(tops.values())


def test_the_map_is_empty_after_a_run(ours: Folding, theirs: dict[str, Any]) -> None:
    assert {state: count for state, count in theirs["counts"].items() if count} == ours.result("ring").counts
    assert set(ours.result("ring").counts) == {"empty"}


def test_fidelity(ours: Folding, theirs: dict[str, Any]) -> None:
    expected = ours.result("fidelity")
    assert theirs["fidelity"]["verdict"] == expected.verdict
    found = {one["name"]: (one["measured"], one["held"], one["where"]) for one in theirs["fidelity"]["thresholds"]}
    assert found == {one.name: (one.measured, one.held, one.where) for one in expected.thresholds}


def test_lanes(ours: Folding, theirs: dict[str, Any]) -> None:
    same_lanes(ours, theirs)


@pytest.mark.parametrize("name", ["dualpath", "dualpath-lost"])
def test_turns_of_agents_and_their_verdict(name: str, tmp_path: Path) -> None:
    ours = Folding(FOLDS).take_all(merge(RECORDINGS / name))
    theirs = folded_by_the_page(RECORDINGS / name, tmp_path / "tables.json")
    same_lanes(ours, theirs)
    assert any(phase[0] == "prefill" for lane in theirs["lanes"] for phase in lane["phases"])
    test_fidelity(ours, theirs)
    assert theirs["ring"]["slots"] == []


def host_driven_run(folder: Path) -> Path:
    """A host-driven server's logs as an emulation has them: a file for each of its processes."""
    spec = spec_from_tables(
        {
            "name": "x",
            "title": "X",
            "systems": {"s": {"kind": "host-driven", "max_batch": 4}},
            "workload": {
                "requests": 6,
                "arrivals": {"kind": "poisson", "rate_per_s": 20},
                "lengths": {"kind": "fixed", "prompt": 40, "output": 12},
            },
        },
        "x.toml",
    )
    prepared = prepare(spec, folder, clock="simulated")
    assert simulate(prepared.plans[0], prepared.folder).outcome == "passed"
    events = prepared.folder.events
    lines = [json.loads(line) for line in (events / "host0.jsonl").read_text().splitlines()]
    core = {"graph.selected", "tokens.published", "batch.changed"}
    parts: dict[str, list[str]] = {"host0": [], "host0-core": [], "host0-worker": []}
    for line in lines:
        kind = line["type"]
        node = "host0-core" if kind in core else "host0-worker" if kind == "graph.launched" else "host0"
        parts[node].append(json.dumps({**line, "node": node, "seq": len(parts[node])}, separators=(",", ":")))
    for node, told in parts.items():
        (events / f"{node}.jsonl").write_text("\n".join(told) + "\n")
    return events


def test_a_host_driven_server_whose_processes_choose_launch_and_run(tmp_path: Path) -> None:
    events = host_driven_run(tmp_path / "runs")
    ours = Folding(FOLDS).take_all(merge(events))
    theirs = folded_by_the_page(events, tmp_path / "tables.json")
    same_lanes(ours, theirs)
    rows = request_spans(ours.result("timeline"))
    assert len(rows) == 6
    for row in rows:
        assert [span.what for span in row.phases] == ["sending", "queued", "prefill", "decode", "delivery"]
        assert [step.step for step in step_table(row)] == [1, 2, 7, 8, 9, 10, 12, 13]
        assert all(step.count for step in step_table(row))
    launches = ours.result("timeline").launches
    assert {launch.node for launch in launches} == {"gpu0"}
    assert all(launch.done is not None and launch.started is not None for launch in launches)


def same_lanes(ours: Folding, theirs: dict[str, Any]) -> None:
    rows = request_spans(ours.result("timeline"))
    assert [lane["name"] for lane in theirs["lanes"]] == [row.name for row in rows]
    for lane, row in zip(theirs["lanes"], rows, strict=True):
        assert lane["request"] == row.request
        assert [lane["ring"], lane["slot"]] == [row.ring, row.slot]
        assert [lane["start"], lane["end"], lane["state"], lane["reason"]] == [
            row.start,
            row.end,
            row.state,
            row.reason,
        ]
        assert lane["phases"] == [[span.what, span.start, span.end] for span in row.phases]
        assert lane["tokens"] == list(row.token_times)
        assert lane["pauses"] == [[span.start, span.end] for span in row.pauses]
        assert lane["steps"] == [[step, times.first, times.last, times.count] for step, times in row.steps]


def test_texts(recorded_run: Path, theirs: dict[str, Any]) -> None:
    texts: dict[int, str] = {}
    for record in merge(recorded_run / "events"):
        if isinstance(record.event, TokensDetokenised):
            texts[record.event.request] = texts.get(record.event.request, "") + record.event.text
    assert {lane["request"]: lane["text"] for lane in theirs["lanes"]} == texts
