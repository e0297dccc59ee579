"""Requests are counted from growing logs: each once, by records as the log writer makes them."""

from __future__ import annotations

from pathlib import Path

import bench_plans

from testbed.events.client_events import RequestFailed, RequestFinished
from testbed.events.log import EventWriter
from testbed.events.run_events import LineLogged
from topologies.request_count import RequestCount


def test_every_ended_request_counts_once_however_the_log_grows(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    count = RequestCount(tmp_path, bench_plans.demo_plan("00000a", workload={"requests": 64}))
    assert count.look() == "0 of 64 requests"  # the client has no log yet
    path = folder / "client0.jsonl"
    with EventWriter(path, "client0") as log:
        log.write(1, RequestFinished(name="request-0", tokens=3, reason="length"))
        log.write(2, LineLogged(text='"type":"request.finished"', severity="info"))
        log.flush()
        assert count.look() == "1 of 64 requests"
        log.write(3, RequestFailed(name="request-1", error="refused"))
        log.write(4, RequestFinished(name="request-2", tokens=3, reason="length"))
    whole = path.read_bytes()
    half = whole.rindex(b"request.finished") + 8
    path.write_bytes(whole[:half])
    assert count.look() == "2 of 64 requests"
    path.write_bytes(whole)
    assert count.look() == count.look() == "3 of 64 requests"


def test_a_workload_that_names_no_number_has_no_total(tmp_path: Path) -> None:
    assert RequestCount(tmp_path, bench_plans.demo_plan("00000a", workload={})).look() == "0 requests"
