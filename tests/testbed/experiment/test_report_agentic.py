from __future__ import annotations

import pytest

from testbed.experiment.report import ReportFacts, report_text
from testbed.experiment.report_agentic import agentic_tables, agentic_text, bar, bottleneck_words, percent
from testbed.experiment.report_page import report_page
from testbed.experiment.run_facts import HopModel, RunFacts
from testbed.experiment.summary import RunSummary, SystemSummary, fold_trial, summarise
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold
from tests.testbed.metrics.agentic_stories import BLOCK_TOKENS, FULL_BYTES, NODES, agentic_run
from tests.testbed.metrics.stories import small_run

RATES = {
    f"{port}.{kind}": 20_000_000_000
    for port in ("pe0.snic0", "pe1.snic0", "de0.snic0", "storage0.snic0")
    for kind in ("snic_rx", "snic_tx")
}
FACTS = RunFacts(dict(NODES), RATES, HopModel(BLOCK_TOKENS, FULL_BYTES, "buffer", 1, persist=True, storage_nics=1))


def summary(facts: RunFacts = FACTS) -> RunSummary:
    return summarise("r", "/r", [fold_trial("ours", "ours", "", agentic_run(), facts)])


def system(facts: RunFacts = FACTS) -> SystemSummary:
    return summary(facts).systems["ours"]


def test_the_text_says_who_read_what_over_which_port() -> None:
    text = report_text(summary(), ReportFacts("two paths"))
    assert "ours: agents and KV traffic" in text
    assert "turns prefill 2, decode 2, split 0, nothing to read 2; hit rate 91.4 %" in text
    assert "decode SNICs carried 50.0 % of" in " ".join(text.split())
    assert "TTFT split    scheduling 11.1 %, allocation 5.6 %, reading 22.2 %, prefill 44.4 %, rest 16.7 %" in text
    assert "pe1-2         storage to PE buffer" in text
    assert "SNICs 0.00 %, CNICs 0.00 %" in text
    assert "lost storage9 (found by pe0); 1 turns placed again" in text
    assert text.index("storage fabric") < text.index("compute fabric") < text.index("  memory")
    assert all(len(line) <= 120 for line in text.splitlines())


def test_a_system_without_kv_traffic_has_no_such_part() -> None:
    blink = summarise("r", "/r", [fold_trial("blink", "blink", "", small_run())])
    assert agentic_tables(blink.systems["blink"]) is None
    assert "KV traffic" not in report_text(blink, ReportFacts("x"))
    assert "KV traffic" not in report_page(blink, ReportFacts("x"))


def test_the_page_has_the_same_tables_and_no_thirteen_steps() -> None:
    timeline = Folding({"t": TimelineFold()}).take_all(agentic_run()).result("t")
    page = report_page(summary(), ReportFacts("two paths"), {"ours": timeline})
    for words in ("Two fabrics", "storage to PE buffer", "prefill SNIC in", "Hops of the data path", "attention"):
        assert words in page
    assert "Thirteen steps" not in page
    assert page.count('<svg class="meter"') == 5, "of the ports with a rate"


def test_every_hop_is_told_once_in_the_order_of_the_table() -> None:
    tables = agentic_tables(system())
    assert tables is not None
    assert [row.hop for row in tables.hops] == [
        "pe1-2", "pe3-4", "pe5-7", "pe8-9", "de1-2", "de3-5", "de-miss", "de6-7", "persist-copy", "persist-write",
    ]  # fmt: skip
    assert all(row.apart_percent == 0 for row in tables.hops)
    assert list(agentic_text("ours", tables))


@pytest.mark.parametrize(
    ("rate", "words"), [(20_000_000_000, "no port or memory is"), (2_000_000_000, ": the bottleneck")]
)
def test_the_verdict_names_the_busiest_port(rate: int, words: str) -> None:
    facts = RunFacts(FACTS.roles, dict.fromkeys(RATES, rate), FACTS.hop_model)
    told = bottleneck_words(system(facts))
    assert "storage nodes' SNIC out" in told
    assert told.endswith((words, f"{words} the bottleneck"))


def test_without_rates_there_is_no_verdict_and_shares_are_dashes() -> None:
    bare = system(RunFacts(dict(NODES)))
    assert bottleneck_words(bare) == ""
    tables = agentic_tables(bare)
    assert tables is not None
    assert {percent(row.busy) for row in tables.use} == {"-"}


def test_a_bar_never_grows_beyond_its_frame() -> None:
    assert (bar(None), bar(0.0), len(bar(0.5)), len(bar(1.7))) == ("", "", 10, 20)
