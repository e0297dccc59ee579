"""What Prometheus is told: identities under load, over several processes, for whom. Known fault serving 20."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from tests.webui.api.calling import RUNS, Caller
from webui.accounts.models import User
from webui.metering import counting
from webui.metering.counting import Counting
from webui.metering.durations import Durations
from webui.metering.exposition import exposition
from webui.metering.models import Tally, Watch
from webui.metering.series import REQUEST_SECONDS, REQUESTS
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """Every sample by name and labels; a sample that comes twice is a fault."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in found, key
            found[key] = one.value
    return found


def total(found: Samples, name: str, **labels: str) -> float:
    return sum(value for (key, told), value in found.items() if key == name and labels.items() <= dict(told).items())


def check_histograms(found: Samples) -> None:
    """Buckets only grow, and the last one is the count."""
    for (name, labels), count in found.items():
        if not name.endswith("_count"):
            continue
        base = name.removesuffix("_count")
        buckets = sorted(
            (float(dict(told)["le"]), value)
            for (key, told), value in found.items()
            if key == f"{base}_bucket" and set(labels) <= set(told)
        )
        values = [value for _, value in buckets]
        assert values == sorted(values), base
        assert values[-1] == count, base
        assert (base + "_sum", labels) in found


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of the tests before are theirs."""
    new = Counting()
    for module in ("counting", "middleware", "exposition"):
        monkeypatch.setattr(f"webui.metering.{module}.here", new)
    monkeypatch.setattr("webui.metering.durations.here", Durations())


def test_a_scrape_under_load_adds_up(served: str, user: User, make_run: Callable[..., Run]) -> None:
    for outcome in (Outcome.PASSED, Outcome.PASSED, Outcome.FAILED):
        made = timezone.now() - timedelta(seconds=20)
        run = make_run(state=State.FINISHED, outcome=outcome, started_at=made, finished_at=timezone.now())
        Run.objects.filter(pk=run.pk).update(created_at=made - timedelta(seconds=7))
    make_run()
    call = {"Authorization": f"Bearer {Caller(user).secret}"}
    scrape = {"Authorization": f"Bearer {settings.SCRAPE_TOKEN}"}
    scrapes: list[Samples] = []

    def load() -> None:
        with httpx.Client(base_url=served, headers=call, timeout=60) as client:
            for number in range(25):
                assert client.get(f"{RUNS}?limit=5").status_code == 200
                assert client.get(f"{RUNS}/20260101-000000-{number:06x}").status_code == 404

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        scrapes.append(samples(httpx.get(f"{served}/metrics", headers=scrape, timeout=60).text))
    for thread in threads:
        thread.join()
    last = samples(httpx.get(f"{served}/metrics", headers=scrape, timeout=60).text)
    name = "looplane_http_requests_total"
    listed, one = f"{RUNS}".removesuffix("/"), f"{RUNS}/<str:run_id>"
    assert total(last, name, route=listed, status="200") == 100
    assert total(last, name, status="404", method="GET") == 100
    assert {dict(labels)["route"] for (key, labels) in last if key == name} >= {listed}
    assert total(last, "looplane_http_request_duration_seconds_count") == total(last, name), one
    for found in [*scrapes, last]:
        check_histograms(found)
        assert total(found, "looplane_runs_finished_total") == 3
        assert total(found, "looplane_runs_finished_total", outcome="passed", on="sim") == 2
        assert total(found, "looplane_runs") == 1
        assert total(found, "looplane_run_duration_seconds_count") == 3
        assert total(found, "looplane_run_queue_seconds_sum") == pytest.approx(21, abs=1)
    for earlier, later in zip(scrapes, [*scrapes[1:], last], strict=True):
        for (key, labels), value in earlier.items():
            if key.endswith(("_total", "_count", "_bucket")):
                assert later[key, labels] >= value, key


def test_several_processes_count_into_one_series() -> None:
    processes = [Counting() for _ in range(3)]

    def work(process: Counting) -> None:
        for _ in range(50):
            process.count(REQUESTS, "GET", "/runs", "200")
            process.observe(REQUEST_SECONDS, 0.02, "/runs")
        process.flush()
        connection.close()

    threads = [threading.Thread(target=work, args=[process]) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = samples(exposition().decode())
    assert total(found, "looplane_http_requests_total", route="/runs") == 150
    assert total(found, "looplane_http_request_duration_seconds_bucket", route="/runs", le="0.01") == 0
    assert total(found, "looplane_http_request_duration_seconds_bucket", route="/runs", le="0.025") == 150
    assert total(found, "looplane_http_request_duration_seconds_sum", route="/runs") == pytest.approx(3.0)


def test_what_cannot_be_written_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    process = Counting()
    process.count(REQUESTS, "GET", "/runs", "200")
    monkeypatch.setattr(counting, "_add", lambda *_: (_ for _ in ()).throw(OperationalError("away")))
    process.flush()
    assert Tally.objects.count() == 0
    monkeypatch.undo()
    process.flush()
    assert Tally.objects.get(name=REQUESTS.name).value == 1


def test_viewers_of_a_process_that_is_gone_do_not_count() -> None:
    now = timezone.now()
    Watch.objects.create(process="alive", viewers=3, seen_at=now)
    Watch.objects.create(process="gone", viewers=5, seen_at=now - timedelta(minutes=5))
    assert total(samples(exposition().decode()), "looplane_stream_viewers") == 3


def test_a_run_is_counted_once_however_often_and_by_whomever_it_is_read(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(minutes_ago: float) -> None:
        at = timezone.now() - timedelta(minutes=minutes_ago)
        run = make_run(state=State.FINISHED, outcome=Outcome.PASSED, started_at=at, finished_at=at)
        Run.objects.filter(pk=run.pk).update(created_at=at)

    monkeypatch.setattr("webui.metering.durations.SETTLED", timedelta(seconds=0.1))
    reader = Durations()
    for _ in range(4):  # each is young when it is read first, and settled when it is read next
        end(0)
        waits, _ = reader.now()
        again, _ = reader.now()
        others, _ = Durations().now()
        assert waits["sim"].counts == again["sim"].counts == others["sim"].counts
        time.sleep(0.15)
    assert sum(waits["sim"].counts) == 4


def test_who_may_see_it(client: Client, logged_in: Client, user: User, make_user: Any) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Bearer {Caller(user).secret}"}).status_code == 401
    assert logged_in.get("/metrics").status_code == 401
    scraped = client.get("/metrics", headers={"Authorization": f"Bearer {settings.SCRAPE_TOKEN}"})
    assert scraped.status_code == 200
    assert scraped.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    admin = Client()
    admin.force_login(make_user("op", role="admin"))
    assert admin.get("/metrics").status_code == 200
    assert client.post("/metrics").status_code in (401, 403, 405)


def test_strangers_choose_no_label(client: Client) -> None:
    for number in range(5):
        client.get(f"/none/{number}")
        client.generic("BREW", f"/api/v1/none{number}")
    found = samples(exposition().decode())
    routes = {dict(labels).get("route") for (key, labels) in found if key == "looplane_http_requests_total"}
    methods = {dict(labels).get("method") for (key, labels) in found if key == "looplane_http_requests_total"}
    assert routes == {"unknown"}
    assert methods <= {"GET", "other"}
