"""How a bench stands: heartbeats, checks, probes, silence. Known faults E6 and E12."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.audit.models import Entry
from webui.benches import health
from webui.benches.console import MARK, console_mark, folder_fault
from webui.benches.health import LOOKS, Steadiness
from webui.benches.identity import bench_name, queues_here
from webui.benches.models import Bench, Health
from webui.benches.outlook import run_outlook
from webui.benches.placement import place
from webui.benches.reporter import Reporter, abilities_of
from webui.benches.selectors import bench_list
from webui.benches.services import bench_close, bench_leaves, bench_probed, bench_report, benches_mark_away
from webui.benches.situation import AWAY_AFTER, situation_now
from webui.catalogue.doctor import Finding, Report
from webui.runs.services import run_claim

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


def report(name: str = "alpha", reason: str = "", tags: tuple[str, ...] = ()) -> Bench:
    return bench_report(name=name, reason=reason, facts={"slots": 2}, tags=tags, simulates=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "RUNS_FOLDER", tmp_path)
    console_mark()
    return tmp_path


def test_a_first_report_makes_the_bench_and_a_change_of_health_is_written_down_once(sent: list[str]) -> None:
    report()
    report()
    assert Bench.objects.get().health == Health.WELL
    report(reason="its disk is full")
    report(reason="its disk is full")
    bench = Bench.objects.get()
    assert (bench.health, bench.reason) == (Health.ILL, "its disk is full")
    assert [entry.detail["health"] for entry in Entry.objects.filter(deed="bench.health").order_by("id")] == [
        "well",
        "ill",
    ]


def test_a_bench_that_is_ill_away_or_closed_takes_nothing_and_says_why(
    make_run: Make, make_user: Make, sent: list[str]
) -> None:
    run = make_run()
    report()
    assert dict(place(situation_now()).starts) == {run.pk: "alpha"}
    report(reason="its disk is full")
    assert place(situation_now()).waits[run.pk].text == "out of service: its disk is full"
    report()
    admin = by_session(make_user("root", role="admin"))
    bench_close(bench=Bench.objects.get(), by=admin)
    assert place(situation_now()).waits[run.pk].text == "closed by an admin"
    Bench.objects.update(is_open=True, seen_at=timezone.now() - AWAY_AFTER - timedelta(seconds=1))
    assert "away" in place(situation_now()).waits[run.pk].text
    [card] = bench_list(caller=admin)
    assert (card.health, card.words, card.tone) == (Health.AWAY, "away", "warn")


def test_while_somebody_else_emulates_on_its_machine_runs_wait_for_that_and_then_are_told(
    make_run: Make, make_user: Make, sent: list[str]
) -> None:
    """No limit runs meanwhile: it begins with the claim, and there is none."""
    report()
    bench_probed(name="alpha", abilities={"emulate": True}, findings=[])
    tell = partial(bench_report, name="alpha", reason="", tags=(), simulates=True)
    tell(facts={"slots": 2, "emulates_elsewhere": True})
    run = make_run(backend="mininet", time_limit_s=60)
    assert run_claim(run_id=run.pk, lease_owner="w", bench="alpha") is None
    ada = by_session(run.owner)
    assert run_outlook(run, ada).reason == "a command or another console emulates on the machine of bench alpha"
    assert [(card.words, card.tone) for card in bench_list(caller=ada)] == [("emulates elsewhere", "run")]
    sent.clear()
    tell(facts={"slots": 2, "emulates_elsewhere": False})
    assert sent == [run.pk]
    claimed = run_claim(run_id=run.pk, lease_owner="w", bench="alpha")
    assert claimed is not None
    assert claimed.ends_by is not None


def test_silence_is_written_down_once_and_a_report_ends_it(sent: list[str]) -> None:
    """E6: what was found before a restart does not outlive it."""
    report()
    assert benches_mark_away() == []
    later = timezone.now() + AWAY_AFTER + timedelta(seconds=1)
    assert benches_mark_away(now=later) == ["alpha"]
    assert benches_mark_away(now=later) == []
    report()
    assert Bench.objects.get().health == Health.WELL
    bench_leaves(name="alpha")
    bench = Bench.objects.get()
    assert (bench.health, bench.reason) == (Health.AWAY, "its worker was stopped")
    report()
    assert Bench.objects.get().health == Health.WELL


def test_a_worker_starts_without_an_opinion_of_its_bench(folder: Path, make_bench: Make, sent: list[str]) -> None:
    """E6: the row says ill from before the restart; the first look of the new worker is what counts."""
    make_bench(health="ill", reason="from another life")
    reporter = Reporter(threads=4)
    reporter._probed = time.monotonic()  # the probes are tested elsewhere
    reporter.beat()
    bench = Bench.objects.get()
    assert (bench.health, bench.reason) == (Health.WELL, "")
    assert bench.facts["slots"] >= 1


def test_one_bad_look_among_good_ones_changes_nothing() -> None:
    """E12: no flapping."""
    steady = Steadiness()
    assert steady.saw("") == ""
    for _ in range(20):
        assert steady.saw("runner away") == ""
        assert steady.saw("") == ""
    said = [steady.saw("runner away") for _ in range(LOOKS + 2)]
    assert said == [""] * (LOOKS - 1) + ["runner away"] * 3
    assert steady.saw("") == "runner away"
    assert steady.saw("disk") == "disk", "another reason is told at once"
    assert [steady.saw("") for _ in range(LOOKS)][-1] == ""
    assert Steadiness().saw("disk") == "disk", "the first look is believed"
    assert steady.know("no runner") == "no runner"


def test_a_heartbeat_that_comes_late_again_and_again_does_not_flap(sent: list[str]) -> None:
    """E12: reports of every 10 s, the silence that counts is 15 s."""
    now = timezone.now()
    report()
    for beat in range(1, 12):
        moment = now + timedelta(seconds=10 * beat)
        assert benches_mark_away(now=moment) == []
        Bench.objects.update(seen_at=moment)
    assert Entry.objects.filter(deed="bench.health").count() == 1


def test_tags_of_the_worker_and_of_an_admin_live_side_by_side(make_bench: Make, sent: list[str]) -> None:
    report(tags=("lab-1", "fast"))
    Bench.objects.update(tags=["lab-1", "fast", "by-admin"])
    report(tags=("lab-2",))
    assert Bench.objects.get().tags == ["lab-2", "by-admin"]


def test_the_folder_of_runs_must_be_this_consoles(folder: Path) -> None:
    assert folder_fault() == ""
    (folder / MARK).write_text("another")
    assert "another console's" in folder_fault()
    console_mark()
    assert folder_fault() == ""
    (folder / MARK).unlink()
    assert "is not the console's" in health.look()


def test_a_folder_that_takes_nothing_and_a_full_disk_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.look() == ""
    assert [path.name for path in folder.iterdir()] == [MARK]
    monkeypatch.setattr(settings, "BENCH_LEAST_DISK_MIB", 1 << 40)
    assert "of disk are left" in health.look()
    monkeypatch.setattr(settings, "RUNS_FOLDER", folder / "none")
    assert "cannot be read" in health.look()


def test_a_runner_that_does_not_answer_is_a_reason_only_where_there_should_be_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "runnerd.sock"
    monkeypatch.setattr(settings, "RUNNERD_SOCKET", path)
    assert health.look() == ""
    monkeypatch.setattr(settings, "RUNNERD_EXPECTED", True)
    assert health.look() == "its privileged runner does not answer"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as peer:
                peer.recv(1000)
                peer.sendall(b'{"ok": true, "running": []}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        assert health.look() == ""
        thread.join(5)


def test_what_a_bench_can_do_follows_from_its_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = (
        Finding("ok", "docker", "there", ""),
        Finding("ok", "interface eth9", "driver x", ""),
        Finding("ok", "RDMA device mlx5_0", "known", ""),
    )
    told = abilities_of(Report(findings, True, True, 0.0))
    assert told == {"emulate": True, "containers": True, "interface:eth9": True, "rdma:mlx5_0": True}
    bad = Finding("bad", "tc", "not installed", "apt-get install iproute2")
    told = abilities_of(Report((bad,), False, True, 0.0))
    assert (told["emulate"], told["containers"]) == ("tc: not installed", "no Docker was found")
    assert "without root" in str(abilities_of(Report((), True, False, 0.0))["emulate"])


def test_probes_leave_what_the_worker_says_of_simulations(sent: list[str]) -> None:
    bench_report(name="alpha", reason="", facts={}, tags=(), simulates=False)
    bench_probed(name="alpha", abilities={"emulate": True}, findings=[])
    assert Bench.objects.get().abilities == {"emulate": True, "simulate": "its worker takes no simulations"}


def test_names_and_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench_name("Lab Host.example.org") == "lab-host-example-org"
    assert bench_name("…") == "bench"
    monkeypatch.setattr(settings, "BENCH_NAME", "lab")
    assert queues_here() == ["bench-lab", "runs"]
    monkeypatch.setattr(settings, "BENCH_SIMULATES", False)
    assert queues_here() == ["bench-lab"]
