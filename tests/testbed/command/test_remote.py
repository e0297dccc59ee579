"""`looplane remote` against what is no console, or one in trouble: one plain line, the right exit code, no traceback.

What it does with a real console is in tests/scenarios/test_ci_examples.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed.command import console_client
from testbed.command.console_client import ConsoleClient
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.remote import verdict_code

Answer = tuple[int, dict[str, str], bytes]
RUN = b'{"id": "20260101-000000-abcdef", "state": "finished", "outcome": "passed", "detail": "", "fidelity": null}'


@pytest.fixture
def server() -> Iterator[Callable[..., str]]:
    """A web server that gives these answers one after the other, the last for ever; its address."""
    started = []

    def serve(*answers: Answer) -> str:
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        started.append(httpd)
        return f"http://127.0.0.1:{httpd.server_port}"

    yield serve
    for httpd in started:
        httpd.shutdown()
        httpd.server_close()


@pytest.fixture
def client() -> Iterator[Callable[..., ConsoleClient]]:
    made = []

    def make(url: str, patience_s: float = 10.0) -> ConsoleClient:
        made.append(ConsoleClient(url, "lp_x", patience_s=patience_s, say=said.append))
        return made[-1]

    said: list[str] = []
    yield make
    for one in made:
        one.close()


def test_a_console_that_comes_back_is_waited_for(
    server: Callable[..., str], client: Callable[..., ConsoleClient]
) -> None:
    away: Answer = (503, {"Retry-After": "0"}, b"<html>bad gateway</html>")
    url = server(away, (429, {"Retry-After": "0"}, b'{"error": {"code": "busy", "message": "later"}}'), (200, {}, RUN))
    assert client(url).run("abcdef")["outcome"] == "passed"


def test_one_that_does_not_is_given_up(server: Callable[..., str], client: Callable[..., ConsoleClient]) -> None:
    refused: Answer = (429, {"Retry-After": "60"}, b'{"error": {"code": "quota", "message": "20 runs wait already"}}')
    with pytest.raises(CommandError, match=r"20 runs wait already; gave up after 0\.1 s") as fault:
        client(server(refused), patience_s=0.1).run("abcdef")
    assert fault.value.code == ExitCode.HOST_CANNOT
    with pytest.raises(CommandError, match="does not answer") as fault:
        client("http://127.0.0.1:1", patience_s=0.1).run("abcdef")
    assert fault.value.code == ExitCode.HOST_CANNOT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b"<html>It works!</html>"), "no Looplane console answers there"),
        ((302, {"Location": "https://elsewhere.example/"}, b""), "redirect to https://elsewhere.example/"),
        ((404, {}, b"<html>nothing</html>"), "answers 404 Not Found"),
        ((404, {}, b'{"error": {"code": "not_found", "message": "There is no run \'abcdef\'."}}'), "There is no run"),
        ((401, {}, b"[]"), "the token is not known, has expired or was revoked"),
        ((422, {}, b'{"error": {"code": "bad_spec", "message": "must be\\n1 or more", "path": "seed"}}'),
         "seed: must be 1 or more"),
    ],
)  # fmt: skip
def test_what_is_no_console_or_refuses_is_said_in_one_line(
    answer: Answer, said: str, server: Callable[..., str], client: Callable[..., ConsoleClient]
) -> None:
    with pytest.raises(CommandError, match=said) as fault:
        client(server(answer)).run("abcdef")
    assert fault.value.code == ExitCode.BAD_INPUT
    assert "\n" not in str(fault.value)


def test_half_a_download_leaves_nothing(
    server: Callable[..., str], client: Callable[..., ConsoleClient], tmp_path: Path
) -> None:
    with pytest.raises(CommandError):
        client(server((404, {}, b"{}"))).download("abcdef", "events/gpu0.jsonl", tmp_path / "events" / "gpu0.jsonl")
    assert list((tmp_path / "events").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (["list"], {}, "set LOOPLANE_URL or --url"),
        (["list", "--url", "ftp://host"], {}, "http(s)://HOST[:PORT]"),
        (["list", "--url", "http://127.0.0.1:1"], {}, "LOOPLANE_TOKEN is not set"),
        (["list", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp x"}, "a token has no blanks"),
        (["list", "--limit", "0", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp_x"}, "--limit 0: 1 to 100"),
        (["run", "no.toml", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp_x"}, "no.toml"),
        (["run", "a/b", "--set", "x", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp_x"}, "--set x: K=V"),
        (["run", "a/b", "--set", "x=[1]", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp_x"}, "into the file"),
        (["run", "a/b", "--junit", "j", "--url", "http://127.0.0.1:1"], {"LOOPLANE_TOKEN": "lp_x"}, "need --wait"),
    ],
)
def test_bad_words_are_refused_before_anything_is_sent(
    words: list[str], environment: dict[str, str], said: str
) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLANE_")}
    command = [sys.executable, "-m", "testbed.command", "remote", *words]
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("outcome", "code"), [("passed", 0), ("failed", 1), ("errored", 4), ("cancelled", 4), ("lost", 4)]
)
def test_exit_codes_are_those_of_the_same_run_here(outcome: str, code: int) -> None:
    assert verdict_code({"outcome": outcome}) == code


def test_a_held_answer_never_outlives_a_usual_proxy() -> None:
    assert console_client.WAIT_S < 30
