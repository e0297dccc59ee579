from __future__ import annotations

import json

from testbed.experiment.export_json import export_json
from testbed.experiment.summary import fold_trial, summarise
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold
from tests.testbed.metrics.stories import MS, small_run


def test_the_document_holds_the_summary_and_the_raw_times() -> None:
    records = small_run(requests=2, tokens=3)
    timeline = Folding({"t": TimelineFold()}).take_all(records).result("t")
    summary = summarise("r", "/r", [fold_trial("blink", "blink", "", records)])
    data = export_json(summary, {"blink": timeline})
    assert data == export_json(summary, {"blink": timeline})
    found = json.loads(data)
    assert found["format"] == 1
    assert found["summary"]["systems"]["blink"]["requests"]["completed"] == 2
    request = found["trials"]["blink"]["requests"][0]
    assert request["published"] == [120 * MS, 126 * MS, 132 * MS]
    assert request["client"]["times"] == [round(t * MS) for t in (120.5, 126.5, 132.5)]
    assert [phase["what"] for phase in request["phases"]] == ["sending", "queued", "prefill", "decode", "delivery"]
    assert request["steps"]["13"]["count"] == 3
    assert len(found["trials"]["blink"]["launches"]) == 6
    assert set(found["steps"]) == {str(step) for step in range(1, 14)}
