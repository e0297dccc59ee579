from __future__ import annotations

import csv
import io

from testbed.events import schema
from testbed.events.log import Record
from testbed.experiment.export_csv import REQUEST_COLUMNS, TOKEN_COLUMNS, export_csv
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold, TimelineState
from tests.testbed.metrics.stories import Story, ask, serve, small_run, started


def timeline(records: list[Record]) -> TimelineState:
    found: TimelineState = Folding({"t": TimelineFold()}).take_all(records).result("t")
    return found


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_for_each_request_and_each_token() -> None:
    files = export_csv({"blink": timeline(small_run(requests=3, tokens=4))})
    requests, tokens = rows(files.requests), rows(files.tokens)
    assert tuple(requests[0]) == REQUEST_COLUMNS
    assert tuple(tokens[0]) == TOKEN_COLUMNS
    assert (len(requests), len(tokens)) == (3, 12)
    first = requests[0]
    assert (first["name"], first["sent_ms"], first["ttft_ms"]) == ("q1", "100.000000", "20.500000")
    assert (first["tpot_ms"], first["latency_ms"], first["tokens"]) == ("6.000000", "38.500000", "4")
    assert first["step_10_first_ms"] == "120.000000"
    assert [token["gap_ms"] for token in tokens[:3]] == ["", "6.000000", "6.000000"]
    assert (tokens[1]["published_ms"], tokens[1]["received_ms"]) == ("126.000000", "126.500000")


def test_what_is_not_known_is_empty() -> None:
    story = ask(Story().at(0, "bench", started()), "alone", 0, [10])
    story.at(1, "client0", schema.RequestSent("bad", 0, 0, 1, 1), schema.RequestFailed("bad", "ring_full"))
    (good, bad) = rows(export_csv({"t": timeline(story.records())}).requests)
    assert (good["request"], good["ttst_ms"], good["step_1_first_ms"]) == ("", "", "")
    assert (bad["state"], bad["reason"], bad["ttft_ms"], bad["latency_ms"]) == ("failed", "ring_full", "", "")


def test_a_server_alone_gives_rows_too() -> None:
    records = [record for record in serve(Story(), 1, 5).records() if record.node != "client0"]
    files = export_csv({"t": timeline(records)})
    assert rows(files.requests)[0]["sent_ms"] == "5.500000"
    assert [token["received_ms"] for token in rows(files.tokens)] == ["", "", ""]


def test_commas_quotes_and_line_ends_survive_and_formulae_do_not_run() -> None:
    story = Story()
    names = ['a,b"c', "two\nlines", "=1+1", "@x", "-2"]
    for place, name in enumerate(names):
        ask(story, name, place, [place + 5])
    found = [row["name"] for row in rows(export_csv({"t": timeline(story.records())}).requests)]
    assert found == ['a,b"c', "two\nlines", "'=1+1", "'@x", "-2"]


def test_the_same_run_gives_the_same_text() -> None:
    assert export_csv({"t": timeline(small_run())}) == export_csv({"t": timeline(small_run())})
