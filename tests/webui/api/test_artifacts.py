"""Files of a run by the API: byte for byte, in parts, and only where they changed. Known fault F14."""

from __future__ import annotations

import email
import hashlib
import urllib.request
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.webui.api.calling import RUNS, Caller, content, error
from webui.accounts.models import User
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def folder(make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> Path:
    return put_run(make_run(state=State.FINISHED, outcome=Outcome.PASSED).pk)


def of(folder: Path, name: str = "summary.json") -> str:
    return f"{RUNS}/{folder.name}/artifacts/{name}"


def test_every_file_that_is_listed_is_the_file(call: Caller, folder: Path) -> None:
    listed = call("GET", f"{RUNS}/{folder.name}/artifacts").json()["artifacts"]
    assert {"summary.json", "report/index.html", "spec.toml"} <= {item["name"] for item in listed}
    for item in listed:
        response = call("GET", of(folder, item["name"]))
        assert response.status_code == 200
        assert content(response) == (folder / item["name"]).read_bytes()
        assert int(response.headers["Content-Length"]) == item["size_bytes"]
        assert "attachment" in response.headers["Content-Disposition"]


@pytest.mark.parametrize("name", ["control/outcome.json", "../secret", "%2e%2e/x", "events/../summary.json", "a\x00b"])
def test_nothing_else_is_ever_sent(call: Caller, folder: Path, name: str) -> None:
    (folder / "control").mkdir(exist_ok=True)
    (folder / "control" / "outcome.json").touch()
    response = call("GET", of(folder, name.replace("\x00", "%00")))
    assert response.status_code == 404
    assert error(response)["code"] == "not_found"


def test_parts(call: Caller, folder: Path) -> None:
    data = (folder / "summary.json").read_bytes()
    response = call("GET", of(folder), Range="bytes=10-19")
    assert (response.status_code, content(response)) == (206, data[10:20])
    assert response.headers["Content-Range"] == f"bytes 10-19/{len(data)}"
    several = call("GET", of(folder), Range="bytes=0-4,-5")
    assert several.status_code == 206
    body = content(several)
    assert int(several.headers["Content-Length"]) == len(body)
    told = email.message_from_bytes(b"Content-Type: " + several.headers["Content-Type"].encode() + b"\r\n\r\n" + body)
    assert [part.get_payload(decode=True) for part in told.walk() if not part.is_multipart()] == [data[:5], data[-5:]]
    refused = call("GET", of(folder), Range=f"bytes={len(data)}-")
    assert (refused.status_code, refused.headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    assert error(refused)["code"] == "bad_range"


def test_only_what_changed_is_sent_again(call: Caller, folder: Path) -> None:
    whole = call("GET", of(folder))
    etag, date = whole.headers["ETag"], whole.headers["Last-Modified"]
    content(whole)
    for headers in ({"If-None-Match": etag}, {"If-None-Match": f'"x", W/{etag}'}, {"If-Modified-Since": date}):
        same = call("GET", of(folder), **headers)
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag)
    assert call("GET", of(folder), **{"If-Match": '"other"'}).status_code == 412
    part = {"Range": "bytes=0-0"}
    for condition, status in ((etag, 206), (date, 206), ('"other"', 200), (f"W/{etag}", 200)):
        response = call("GET", of(folder), **part, **{"If-Range": condition})
        assert response.status_code == status
        content(response)
    with (folder / "summary.json").open("a") as file:
        file.write("\n")
    changed = call("GET", of(folder), **{"If-None-Match": etag})
    assert changed.status_code == 200
    content(changed)


def test_the_head_alone(call: Caller, folder: Path) -> None:
    response = call("HEAD", of(folder))
    assert (response.status_code, content(response)) == (200, b"")
    assert int(response.headers["Content-Length"]) == (folder / "summary.json").stat().st_size


def test_the_served_bytes_have_the_files_hash(served: str, user: User, folder: Path) -> None:
    """By the real server, compressed or not, in parts or whole: F14, and 40 MB in no more than a few of memory."""
    caller = Caller(user)
    name = "events/large.jsonl"
    with (folder / name).open("wb") as file:
        for number in range(40):
            file.write(hashlib.sha256(bytes([number])).digest() * 32_768)
    expected = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    headers = {"Authorization": f"Bearer {caller.secret}", "Accept-Encoding": "gzip, br"}
    found = hashlib.sha256()
    with httpx.Client() as client, client.stream("GET", f"{served}{of(folder, name)}", headers=headers) as answer:
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        for chunk in answer.iter_raw():
            found.update(chunk)
    assert found.hexdigest() == expected
    size, data = (folder / name).stat().st_size, b""
    for start in range(0, size, 7_000_000):
        request = urllib.request.Request(f"{served}{of(folder, name)}", headers=headers)
        request.add_header("Range", f"bytes={start}-{start + 6_999_999}")
        with urllib.request.urlopen(request, timeout=20) as part:
            data += part.read()
    assert hashlib.sha256(data).hexdigest() == expected
