from __future__ import annotations

import csv
import io

from testbed.experiment.export_csv_traffic import TRANSFER_COLUMNS, TURN_COLUMNS, export_traffic
from testbed.metrics.fold import Folding
from testbed.metrics.traffic_timeline import TrafficFold, TrafficState
from tests.testbed.metrics.agentic_stories import FULL_BYTES, agentic_run


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_turns_and_transfers_have_a_row_each() -> None:
    state: TrafficState = Folding({"t": TrafficFold()}).take_all(agentic_run(2, 2)).result("t")
    files = export_traffic({"r0": state, "r1": state})
    turns, transfers = rows(files.turns), rows(files.transfers)
    assert (tuple(turns[0]), tuple(transfers[0])) == (TURN_COLUMNS, TRANSFER_COLUMNS)
    assert [row["trial"] for row in turns] == ["r0"] * 4 + ["r1"] * 4
    assert len(transfers) == 2 * len(state.transfers)
    second = turns[1]
    assert (second["turn"], second["path"], second["decode_blocks"], second["hit_tokens"]) == (
        "a0000.t001", "decode", "10", "640",
    )  # fmt: skip
    assert (second["placed_ms"], second["ready_ms"], second["landing_ms"]) == ("50.000000", "55.000000", "")
    (read,) = [
        row for row in transfers if row["turn"] == "a0000.t001" and row["hop"] == "de1-2" and row["trial"] == "r0"
    ]
    assert (read["bytes"], read["began_ms"], read["ended_ms"]) == (str(10 * FULL_BYTES), "51.000000", "55.000000")
    assert read["crossed"] == "storage0.snic0.snic_tx de0.snic0.snic_rx de0.dram"


def test_no_traffic_is_two_empty_tables() -> None:
    files = export_traffic({"r0": TrafficState()})
    assert (rows(files.turns), rows(files.transfers)) == ([], [])
