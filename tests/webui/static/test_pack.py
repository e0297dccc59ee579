"""The packed timeline: a page's state from a pack, with or without events after it, is its state from the whole log."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.events.ordering import merge
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import read_spec
from webui.runs.levels import LEVELS
from webui.runs.pack_source import merged_lines
from webui.runs.pack_stories import StoryFault, keys_of, story_lines
from webui.runs.packing import make_pack, packed
from webui.runs.page import LIMITS

HERE = Path(__file__).parent
RECORDINGS = HERE.parents[2] / "fixtures" / "recordings"
HOST_DRIVEN = HERE.parents[2] / "fixtures" / "experiments" / "blink" / "host-driven-small.toml"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)")


def same_state(events: Path, packs: list[Path], work: Path) -> int:
    """Whether a page knows the same from each pack and what follows it as from the whole log; the number of events."""
    tables = work / "tables.json"
    tables.write_text(json.dumps({"levels": LEVELS, "limits": LIMITS}))
    words = ["node", str(HERE / "pack_state.mjs"), str(events), str(tables), *map(str, packs)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return int(done.stdout)


def host_driven(folder: Path) -> Path:
    prepared = prepare(read_spec(HOST_DRIVEN), folder, clock="simulated")
    simulate(prepared.plans[0], prepared.folder)
    return prepared.folder.path / "events"


KINDS = [
    "blink",
    "two-rings",
    "host-driven",
    *(path.name for path in sorted(RECORDINGS.iterdir()) if list(path.glob("*.jsonl"))),
]


@pytest.fixture(params=KINDS)
def events(request: pytest.FixtureRequest, recorded_run: Path, two_rings: Path, tmp_path: Path) -> Path:
    if request.param in {"blink", "two-rings"}:
        return recorded_run / "events" if request.param == "blink" else two_rings
    return host_driven(tmp_path / "run") if request.param == "host-driven" else RECORDINGS / request.param


@needs_node
def test_a_page_knows_the_same_from_a_pack_as_from_the_log(events: Path, tmp_path: Path) -> None:
    """Fault F2, joining late: at any cut, the pack up to there and the events from there on are the whole."""
    total = sum(1 for _ in merge(events))
    packs = []
    for cut in (None, 0, random.Random(events.name).randrange(1, total)):
        packs.append(tmp_path / f"{cut}.pack")
        packs[-1].write_bytes(packed(events, limit=cut))
    assert same_state(events, packs, tmp_path) == total


@needs_node
def test_the_comparison_sees_a_difference(recorded_run: Path, tmp_path: Path) -> None:
    data = packed(recorded_run / "events")
    (tmp_path / "x.pack").write_bytes(data.replace(b'"strays":0', b'"strays":1'))
    with pytest.raises(AssertionError, match="state from"):
        same_state(recorded_run / "events", [tmp_path / "x.pack"], tmp_path)


def test_lines_come_in_the_one_order(recorded_run: Path) -> None:
    events = recorded_run / "events"
    expected = [(record.t, record.node, record.seq) for record in merge(events)]
    with merged_lines(events) as lines:
        assert [line[:3] for line in lines] == expected


def test_a_bad_line_is_left_out_and_half_a_line_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "gpu0.jsonl"
    lines = [json.dumps({"t": t, "node": "gpu0", "seq": t, "type": "node.heartbeat"}) for t in range(4)]
    log.write_text("\n".join([lines[0], '{"t":1,"node', "null", "\N{SNOWMAN}", *lines[1:]]))
    with merged_lines(tmp_path) as source:
        assert [line.seq for line in source] == [0, 1, 2]
    assert source.bad == 3
    assert source.cursor.offsets == {"gpu0": len(log.read_bytes()) - len(lines[3])}
    assert source.share < 1


def test_stories_are_each_requests_own_lines(recorded_run: Path, tmp_path: Path) -> None:
    events = recorded_run / "events"
    shares: list[float] = []
    make_pack(events, tmp_path / "x.pack", shares.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.pack", "x.stories"]
    expected: dict[str, list[bytes]] = {}
    with merged_lines(events) as lines:
        for line in lines:
            for key in keys_of(line.event):
                expected.setdefault(key, []).append(line.raw)
    assert len(expected) == 48  # each by its number and by its name
    for key, own in expected.items():
        assert story_lines(tmp_path / "x.stories", [key]) == own
    assert story_lines(tmp_path / "x.stories", ["r99999"]) == []
    (tmp_path / "x.stories").write_bytes(b"cut")
    with pytest.raises(StoryFault):
        story_lines(tmp_path / "x.stories", ["r1"])


def test_a_pack_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.jsonl").write_text('{"t":1,"node":"a","seq":0,"type":"tokens.read"}\n')
    with pytest.raises(KeyError):
        make_pack(tmp_path / "events", tmp_path / "x.pack", lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["events"]
