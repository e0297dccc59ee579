from __future__ import annotations

from html.parser import HTMLParser

from testbed.events import schema
from testbed.experiment.paper import Ours, beside, bundled_papers
from testbed.experiment.report import ReportFacts
from testbed.experiment.report_page import report_page
from testbed.experiment.spec import Bound
from testbed.experiment.summary import fold_trial, summarise
from testbed.metrics.fold import Folding
from testbed.metrics.timeline import TimelineFold
from tests.testbed.metrics.stories import Story, ask, serve, small_run, started

EVIL = "<script>alert('x')</script>\"'&"
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Checks that tags are closed in order, and gathers what the page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.gather(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.gather(attrs)

    def gather(self, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "action", "srcset", "data"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def page_of(story: Story, facts: ReportFacts, expect: dict[str, Bound] | None = None) -> str:
    records = story.records()
    trial = fold_trial("blink", "blink", "", records)
    timeline = Folding({"t": TimelineFold()}).take_all(records).result("t")
    summary = summarise("run-1", "/runs/run-1", [trial], expect or {})
    paper = bundled_papers()[0]
    rows = beside(paper, Ours("blink", "llama-3-8b", {}, summary.systems["blink"]))
    return report_page(summary, facts._replace(beside={"blink": rows}), {"blink": timeline})


def plain_story(requests: int = 5) -> Story:
    story = Story().at(0, "bench", started())
    for request in range(1, requests + 1):
        serve(story, request, 20 * request, tokens=12)
    return story.at(20 * requests + 800, "bench", schema.RunFinished("passed"))


def test_the_page_says_all_that_the_text_says() -> None:
    facts = ReportFacts("Five requests", "Do they arrive?", ("a note",), (("seed", "7"),), ("open it so",))
    page = page_of(plain_story(), facts, {"systems.blink.ttft_ms.p50": Bound(at_most=25)})
    text = " ".join(read(page).text)
    for words in (
        "Five requests", "Do they arrive?", "a note", "seed", "open it so", "Passed", "Faithful", "20.5", "/runs/run-1",
        "systems.blink.ttft_ms.p50 at most 25", "gaps between chunks, pooled over all requests", "guidellm",
        "prompt is written by RDMA into GPU memory", "Up close", "A p99 takes 100 requests, measured are 5.",
    ):  # fmt: skip
        assert words in text, words


def test_the_papers_values_stand_beside_ours_once_there_are_enough() -> None:
    enough = " ".join(read(page_of(plain_story(100), ReportFacts("A hundred"))).text)
    assert "653.80" in enough
    assert "takes 100 requests" not in enough
    assert "653.80" not in " ".join(read(page_of(plain_story(), ReportFacts("Five"))).text)


def test_it_needs_nothing_beside_itself_and_runs_nothing() -> None:
    reader = read(page_of(plain_story(), ReportFacts("t")))
    assert reader.addresses == ["data:,"]
    assert reader.handlers == []
    assert not reader.tags & {"script", "iframe", "object", "embed", "img", "base", "form"}


def test_whatever_a_run_or_its_author_writes_is_text() -> None:
    """Fault F11: names, reasons, titles, log words, also in the timeline's tooltips."""
    story = Story().at(0, "bench", started("wall", 2.0))
    story.at(-1, EVIL, schema.NodeReady(EVIL, 1))
    ask(story, EVIL, 0, [10, 20, 30])
    story.at(1, "client0", schema.RequestSent("bad" + EVIL, 0, 0, 1, 1))
    story.at(2, "client0", schema.RequestFailed("bad" + EVIL, EVIL))
    story.at(3, "dpu0", schema.RequestArrived(1, EVIL, 1, 1))
    story.at(4, "gpu0", schema.GraphLaunched(1, EVIL, EVIL, EVIL, 1, 0, 1, 10_000_000))
    for t in (5, 6):
        story.at(t, "gpu0", schema.LinkMeasured(EVIL, 0, 10, 1, 1, 1, 10, 10))
    story.at(90, "bench", schema.RunFinished("errored", EVIL))
    facts = ReportFacts(EVIL, EVIL, (EVIL,), ((EVIL, EVIL),), (EVIL,))
    page = page_of(story, facts)
    assert "<script" not in page
    reader = read(page)
    assert "script" not in reader.tags
    assert reader.handlers == []
    assert "".join(reader.text).count("alert('x')") >= 8


def test_the_same_run_gives_the_same_page() -> None:
    assert page_of(plain_story(), ReportFacts("t")) == page_of(plain_story(), ReportFacts("t"))


def test_a_run_without_requests_and_one_that_was_lost_have_a_page() -> None:
    read(page_of(Story().at(0, "bench", started()).at(1, "bench", schema.RunFinished("passed")), ReportFacts("t")))
    read(report_page(summarise("r", "/r", []), ReportFacts("t")))


def test_trials_past_the_limit_are_counted_and_systems_are_told_apart() -> None:
    records = small_run()
    timeline = Folding({"t": TimelineFold()}).take_all(records).result("t")
    trials = [fold_trial(f"t{k}", "blink", f"rate={k}", records) for k in range(10)]
    page = report_page(summarise("r", "/r", trials), ReportFacts("t"), {one.label: timeline for one in trials})
    text = "".join(read(page).text)
    assert "2 more trials are not drawn" in text
    assert "blink rate=9" in text
