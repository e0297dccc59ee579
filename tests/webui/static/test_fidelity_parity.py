"""The page's live verdict against testbed.metrics.fidelity on a recorded emulation, at every third of its log too."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.events.log import Record, encode_record
from testbed.events.ordering import merge
from testbed.metrics.fold import Folding
from testbed.metrics.table import FOLDS
from webui.runs.page import LEVELS, LIMITS

RECORDING = Path(__file__).resolve().parents[3] / "fixtures" / "recordings" / "mininet"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)")


def on_the_page(records: list[Record], folder: Path) -> dict[str, object]:
    (folder / "events").mkdir(parents=True)
    for record in records:
        with (folder / "events" / f"{record.node}.jsonl").open("ab") as log:
            log.write(encode_record(record.t, record.node, record.seq, record.event).rstrip(b"\n") + b"\n")
    (folder / "tables.json").write_text(json.dumps({"levels": LEVELS, "limits": LIMITS}))
    words = ["node", str(Path(__file__).with_name("fold_log.mjs")), str(folder / "events"), str(folder / "tables.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["fidelity"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("part", [1 / 3, 2 / 3, 1])
def test_the_live_verdict_is_the_reports(part: float, tmp_path: Path) -> None:
    everything = list(merge(RECORDING))
    records = everything[: round(len(everything) * part)]
    expected = Folding({"fidelity": FOLDS["fidelity"]}).take_all(records).result("fidelity")
    found = on_the_page(records, tmp_path / "run")
    if part == 1:
        assert any(threshold.name == "lateness p99" and threshold.measured for threshold in expected.thresholds)
    for mine, theirs in zip(expected.thresholds, found["thresholds"], strict=True):  # type: ignore[call-overload]
        assert theirs["name"] == mine.name
        assert theirs["measured"] == pytest.approx(mine.measured, abs=0.0011), mine.name
        assert theirs["held"] == mine.held
    assert found["verdict"] == expected.verdict
