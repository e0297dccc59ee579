"""Messages from a run's row to a real receiver: told once, signed, tried again, never to where they may not go."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webui.api.calling import API, Caller, error
from tests.webui.hooks.guides_receiver import is_from_looplane
from webui.accounts.models import User
from webui.audit.models import Entry
from webui.hooks import selectors, sending, services
from webui.hooks.models import Delivery, Webhook
from webui.hooks.sender import send_round
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver:
    """Takes messages and answers as it is told."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.pause_s = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(outer.pause_s)
                outer.taken.append((dict(self.headers), body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 204)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?from=looplane"

    def events(self) -> list[str]:
        return [json.loads(body)["event"] for _, body in self.taken]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield one
    one.server.shutdown()
    one.server.server_close()
    thread.join()


@pytest.fixture
def allowed(settings: Any) -> None:
    settings.HOOK_HOSTS = ("127.0.0.0/8",)


EVERYTHING = ["run.queued", "run.started", "run.finished", "run.verdict"]


@pytest.fixture
def hook(user: User, receiver: Receiver, allowed: None) -> Webhook:
    made, secret = services.hook_create(owner=user, url=receiver.url, events=EVERYTHING)
    made.told_secret = secret
    return made


def finish(run: Run, outcome: Outcome = Outcome.PASSED) -> None:
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(
        state=State.FINISHED, outcome=outcome, started_at=run.started_at or now, finished_at=now
    )


def test_a_run_is_told_from_its_queue_to_its_verdict(
    hook: Any, receiver: Receiver, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    send_round()
    finish(run)
    send_round()
    assert receiver.events() == EVERYTHING
    for headers, body in receiver.taken:
        assert is_from_looplane(hook.told_secret, body, headers["Looplane-Signature"])
        assert headers["Looplane-Event"] == json.loads(body)["event"]
        assert json.loads(body)["run"]["id"] == run.pk
    assert json.loads(receiver.taken[-1][1])["verdict"]["passed"] is True
    assert len({headers["Looplane-Delivery"] for headers, _ in receiver.taken}) == 4
    assert send_round() == 0
    assert send_round() == 0  # everything has been told, once


def test_only_ones_own_runs_since_the_hook_and_only_what_was_asked_for(
    user: User, receiver: Receiver, allowed: None, make_run: Callable[..., Run], make_user: Callable[..., User]
) -> None:
    finish(make_run())  # before there was a hook
    services.hook_create(owner=user, url=receiver.url, events=["run.finished"])
    finish(make_run(owner=make_user("bob"), visibility="everyone"))
    cancelled = make_run()
    finish(cancelled, Outcome.CANCELLED)
    send_round()
    assert [json.loads(body)["run"]["id"] for _, body in receiver.taken] == [cancelled.pk]


def test_a_receiver_that_fails_is_asked_again_later_and_given_up_at_last(hook: Webhook, receiver: Receiver) -> None:
    receiver.statuses = [500] * 20
    delivery = services.hook_ping(hook=hook)
    waits = []
    for _ in range(len(services.WAITS) + 1):
        before = timezone.now()
        assert send_round() == 1
        delivery.refresh_from_db()
        if delivery.due_at is not None:
            waits.append(round((delivery.due_at - before).total_seconds()))
            assert send_round() == 0  # not before its time
            Delivery.objects.update(due_at=timezone.now())
    assert waits == list(services.WAITS)
    assert (delivery.due_at, delivery.delivered_at, delivery.status) == (None, None, 500)
    assert delivery.fault == "answered 500"
    assert len({headers["Looplane-Delivery"] for headers, _ in receiver.taken}) == 1
    receiver.statuses = []
    services.delivery_again(delivery=delivery)
    send_round()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.fault, delivery.attempts) == (204, "", 1)


def test_two_senders_at_once_send_once(hook: Webhook, receiver: Receiver, make_run: Callable[..., Run]) -> None:
    for _ in range(5):
        make_run()
    receiver.pause_s = 0.05
    threads = [threading.Thread(target=send_round) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    send_round()
    assert len(receiver.taken) == 5
    assert Delivery.objects.filter(delivered_at=None).count() == 0


def test_a_sender_that_died_is_followed_by_another(hook: Webhook, receiver: Receiver) -> None:
    delivery = services.hook_ping(hook=hook)
    held = timezone.now() + services.HELD
    Delivery.objects.update(due_at=held, attempts=1)  # claimed, and then nothing
    assert send_round() == 0
    Delivery.objects.update(due_at=held - 2 * services.HELD)
    assert send_round() == 1
    delivery.refresh_from_db()
    assert delivery.delivered_at is not None


def test_redirects_are_not_followed(hook: Webhook, receiver: Receiver) -> None:
    receiver.statuses = [302]
    delivery = services.hook_ping(hook=hook)
    send_round()
    delivery.refresh_from_db()
    assert (delivery.status, delivery.fault) == (302, "answered 302; redirects are not followed")
    assert len(receiver.taken) == 1


def test_an_answer_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WHOLE_S", 0.6)
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.1)
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    answer = sending.send(url, b"{}", {}, allowed=("127.0.0.1",))
    listener.close()
    thread.join()
    assert (answer.status, answer.delivered) == (None, False)
    assert "no answer" in answer.fault


def test_what_the_installation_does_not_allow_is_not_connected_to(
    hook: Webhook, receiver: Receiver, settings: Any
) -> None:
    """Also not when the address was fine as the hook was made, and the name has since been moved inside."""
    settings.HOOK_HOSTS = ()
    delivery = services.hook_ping(hook=hook)
    send_round()
    delivery.refresh_from_db()
    assert "not public" in delivery.fault
    assert receiver.taken == []


def test_a_hook_of_somebody_who_may_no_longer_start_runs_is_silent(
    hook: Webhook, user: User, receiver: Receiver, make_run: Callable[..., Run]
) -> None:
    make_run()
    User.objects.update(role="viewer")
    assert selectors.run_untold() == []
    User.objects.update(role="runner", is_active=False)
    assert selectors.run_untold() == []
    services.hook_ping(hook=hook)  # what was waiting when the account was closed
    assert send_round() == 0
    assert receiver.taken == []


def test_old_deliveries_are_forgotten_and_nothing_is_told_anew(
    hook: Webhook, receiver: Receiver, make_run: Callable[..., Run]
) -> None:
    make_run()
    send_round()
    long_ago = timezone.now() - services.KEPT - timedelta(days=1)
    Delivery.objects.update(created_at=long_ago)
    Webhook.objects.update(created_at=long_ago)
    Run.objects.update(created_at=long_ago)
    services.delivery_tidy()
    assert Delivery.objects.count() == 0
    assert send_round() == 0


def test_webhooks_by_the_api(user: User, receiver: Receiver, allowed: None, make_user: Callable[..., User]) -> None:
    call, other = Caller(user), Caller(make_user("bob"))
    made = call("POST", f"{API}/webhooks", {"url": receiver.url, "events": ["run.finished"]})
    assert made.status_code == 201
    where, secret = made.headers["Location"], made.json()["secret"]
    assert secret not in call("GET", where).content.decode()
    assert Entry.objects.filter(deed="hook.create").count() == 1
    assert secret not in json.dumps(list(Entry.objects.values_list("detail", flat=True)))
    for method, path in (("GET", where), ("DELETE", where), ("POST", f"{where}/ping"), ("GET", f"{where}/deliveries")):
        assert other(method, path).status_code == 404
    ping = call("POST", f"{where}/ping").json()
    send_round()
    told = call("GET", f"{where}/deliveries").json()["deliveries"]
    assert [(one["id"], one["event"], one["status"], one["fault"]) for one in told] == [(ping["id"], "ping", 204, "")]
    again = f"{where}/deliveries/{ping['id']}/redeliver"
    assert other("POST", again).status_code == 404
    assert call("POST", again).json()["delivered_at"] is None
    send_round()
    assert len(receiver.taken) == 2
    assert call("PATCH", where, {"active": False}).json()["active"] is False
    assert [entry.detail for entry in Entry.objects.filter(deed="hook.change")] == [{"active": False}]
    call("POST", f"{where}/ping")
    assert send_round() == 0
    assert call("DELETE", where).status_code == 204
    assert Delivery.objects.count() == 0


def test_a_hook_whose_host_is_gone_can_still_be_switched_off(hook: Webhook, user: User, logged_in: Client) -> None:
    Webhook.objects.update(url="https://gone.invalid/")
    assert logged_in.post(f"/account/webhooks/{hook.pk}/switch").status_code == 302
    hook.refresh_from_db()
    assert not hook.is_active
    answer = Caller(user)("PATCH", f"{API}/webhooks/{hook.pk}", {"url": "https://gone.invalid/elsewhere"})
    assert (answer.status_code, error(answer)["path"]) == (422, "url")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"url": "http://127.0.0.1/"}, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https://93.184.216.34/", "events": []}, "events"),
        ({"url": "https://93.184.216.34/", "events": ["run.exploded"]}, "events"),
        ({"url": "https://93.184.216.34/", "secret": "mine"}, "secret"),
        ({}, "url"),
    ],
)
def test_bad_webhooks_are_refused_by_field(user: User, body: dict[str, Any], path: str) -> None:
    response = Caller(user)("POST", f"{API}/webhooks", body)
    assert response.status_code == 422
    assert error(response)["path"].startswith(path)
    assert Webhook.objects.count() == 0


def test_one_person_has_so_many_and_no_more(user: User) -> None:
    call = Caller(user)
    for _ in range(services.MOST_HOOKS):
        assert call("POST", f"{API}/webhooks", {"url": "https://93.184.216.34/"}).status_code == 201
    assert call("POST", f"{API}/webhooks", {"url": "https://93.184.216.34/"}).status_code == 409


def test_the_pages(user: User, logged_in: Client, receiver: Receiver, allowed: None, make_user: Any) -> None:
    form = {"url": receiver.url, "events": ["run.finished", "run.verdict"]}
    made = logged_in.post("/account/webhooks", form)
    assert made.status_code == 303
    page = logged_in.get("/account/webhooks").content.decode()
    hook = Webhook.objects.get()
    assert hook.secret in page
    assert hook.secret not in logged_in.get("/account/webhooks").content.decode()  # shown once
    assert logged_in.post(f"/account/webhooks/{hook.pk}/ping").status_code == 302
    send_round()
    assert "taken, 204" in logged_in.get(f"/account/webhooks/{hook.pk}").content.decode()
    delivery = Delivery.objects.get()
    logged_in.post(f"/account/webhooks/{hook.pk}/messages/{delivery.pk}/again")
    assert send_round() == 1
    bad = logged_in.post("/account/webhooks", {"url": "http://10.0.0.1/", "events": ["run.finished"]})
    assert bad.status_code == 422
    assert "not public" in bad.content.decode()
    other, viewer = Client(), Client()
    other.force_login(make_user("bob"))
    viewer.force_login(make_user("vera", role="viewer"))
    assert other.get(f"/account/webhooks/{hook.pk}").status_code == 404
    assert viewer.get("/account/webhooks").status_code == 403
    assert logged_in.post(f"/account/webhooks/{hook.pk}/remove").status_code == 302
    assert Webhook.objects.count() == 0


def test_a_dead_receiver_with_a_heap_of_messages_takes_nobody_elses_place(
    user: User, receiver: Receiver, allowed: None, make_user: Callable[..., User]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead, _ = services.hook_create(
            owner=user, url=f"http://127.0.0.1:{closed.getsockname()[1]}/", events=["run.finished"]
        )
        earlier = timezone.now() - timedelta(hours=1)
        Delivery.objects.bulk_create(
            Delivery(webhook=dead, event="ping", body="{}", due_at=earlier) for _ in range(3 * selectors.BATCH)
        )
        alive, _ = services.hook_create(owner=make_user("bea"), url=receiver.url, events=["run.finished"])
        services.hook_ping(hook=alive)
        send_round()
    assert receiver.events() == ["ping"]


def test_one_test_message_at_a_time(hook: Webhook, receiver: Receiver) -> None:
    assert services.hook_ping(hook=hook) == services.hook_ping(hook=hook)
    send_round()
    services.hook_ping(hook=hook)
    assert Delivery.objects.filter(webhook=hook).count() == 2
