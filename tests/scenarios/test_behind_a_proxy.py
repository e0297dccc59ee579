"""A console behind nginx that speaks TLS (LOOPLANE_HTTPS): the configuration of docs/guide/operating.md, for real.

Signing in sets cookies that only travel over TLS, a live stream passes, a download has the hash of the file (known
fault F14), and nobody forges an address or a scheme from outside.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from consoles import SMALL, TOP, Console, until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.real_servers import free_port

pytestmark = pytest.mark.root
GUIDE = TOP / "docs" / "guide" / "operating.md"
HOST = "looplane.example"


def nginx_program() -> str | None:
    return os.environ.get("LOOPLANE_NGINX") or shutil.which("nginx", path="/usr/sbin:/usr/bin")


class Proxy:
    """nginx with the guide's server block, a certificate of its own making, and the console behind it."""

    def __init__(self, program: str, console: Console) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="looplane-nginx-", dir="/var/tmp"))
        self.port = free_port()
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", f"/CN={HOST}"]
        words += ["-addext", f"subjectAltName=DNS:{HOST}"]
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        (self.folder / "nginx.conf").write_text(self._configuration(console.address.rpartition(":")[2]))
        self.process = subprocess.Popen([program, "-p", str(self.folder), "-c", "nginx.conf", "-e", "error.log"])
        self.tls = ssl.create_default_context(cafile=str(self.folder / "cert.pem"))

    def _configuration(self, console_port: str) -> str:
        """The block that the guide shows, with this test's names and numbers."""
        block = re.search(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        assert block, "the guide has no nginx block"
        text = block[1].replace("looplane.example.org", HOST).replace("127.0.0.1:8400", f"127.0.0.1:{console_port}")
        text = re.sub(r"listen 443 ssl[^;]*;", f"listen 127.0.0.1:{self.port} ssl;", text)
        text = re.sub(r"ssl_certificate [^;]+;", f"ssl_certificate {self.folder}/cert.pem;", text)
        text = re.sub(r"ssl_certificate_key [^;]+;", f"ssl_certificate_key {self.folder}/key.pem;", text)
        places = "".join(f"{name}_temp_path {self.folder}/{name};\n"
                         for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
        return f"daemon off;\npid {self.folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{text}\n}}\n"

    def ask(
        self, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One question over TLS, to the name that the certificate is for."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.tls)
        raw = socket.create_connection(("127.0.0.1", self.port), 20)
        connection.sock = self.tls.wrap_socket(raw, server_hostname=HOST)
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, headers={"Host": HOST, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        """Ends it; nothing is left."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    made = Console(environment={"LOOPLANE_HTTPS": "1", "LOOPLANE_HOSTS": HOST})
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxy(console: Console) -> Iterator[Proxy]:
    program = nginx_program()
    if program is None:
        pytest.skip("needs nginx (apt-get install nginx-light, or LOOPLANE_NGINX)")
    made = Proxy(program, console)
    until(lambda: _answers(made), "nginx does not answer", 20)
    yield made
    made.close()


def _answers(proxy: Proxy) -> bool | None:
    try:
        return proxy.ask("/healthz")[0] == 200 or None
    except OSError:
        return None


def test_the_proxy_vouches_for_tls_and_cookies_stay_on_it(proxy: Proxy, console: Console) -> None:
    status, headers, _ = proxy.ask("/login")
    assert status == 200
    assert "max-age" in headers["Strict-Transport-Security"]
    assert all(word in headers["Set-Cookie"] for word in ("Secure", "HttpOnly", "SameSite=Lax"))
    port = int(console.address.rpartition(":")[2])
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    plain.request("GET", "/login", headers={"Host": HOST})
    answer = plain.getresponse()
    assert (answer.status, answer.headers["Location"]) == (301, f"https://{HOST}/login")
    plain.close()


def test_a_run_is_started_followed_and_downloaded_through_it(proxy: Proxy, console: Console) -> None:
    """Fault F14: the same bytes as on the disk, compressed on the way or not."""
    token = {"Authorization": f"Bearer {console.token}"}
    body = json.dumps({"spec": SMALL.read_text(), "on": "sim"}).encode()
    status, headers, said = proxy.ask("/api/v1/runs", {**token, "Content-Type": "application/json"}, body)
    assert status == 202, said
    run = json.loads(said)["id"]
    frames = list(_stream(proxy, console, run))
    assert "end" in json.loads(frames[-1])
    sent = b"".join(frame.split(b"\n", 1)[1] for frame in frames if isinstance(frame, bytes))
    logs = list((console.runs / run / "events").glob("*.jsonl"))
    assert sorted(sent.splitlines()) == sorted(b"".join(path.read_bytes() for path in logs).splitlines())

    names = [one["name"] for one in json.loads(proxy.ask(f"/api/v1/runs/{run}/artifacts", token)[2])["artifacts"]]
    files = [name for name in names if (console.runs / run / name).is_file()]
    assert len(files) >= 3, names
    codings = set()
    for name in files:
        kept = hashlib.sha256((console.runs / run / name).read_bytes()).hexdigest()
        for wanted in ("identity", "gzip"):
            where = f"/api/v1/runs/{run}/artifacts/{name}"
            status, headers, said = proxy.ask(where, {**token, "Accept-Encoding": wanted})
            assert status == 200, name
            coding = headers.get("Content-Encoding")
            codings.add(coding)
            assert hashlib.sha256(gzip.decompress(said) if coding == "gzip" else said).hexdigest() == kept, name
    assert codings == {None, "gzip"}


def _stream(proxy: Proxy, console: Console, run: str) -> Iterator[str | bytes]:
    """Every frame of the live stream, from the first event to the end."""
    session = "; ".join(f"{one['name']}={one['value']}" for one in console.cookies())
    with connect(
        f"wss://{HOST}/ws/runs/{run}?cursor=", sock=socket.create_connection(("127.0.0.1", proxy.port), 20),
        ssl=proxy.tls, server_hostname=HOST, origin=f"https://{HOST}",  # type: ignore[arg-type]
        additional_headers={"Cookie": session}, max_size=None,
    ) as stream:  # fmt: skip
        for frame in stream:
            if isinstance(frame, bytes):
                with suppress(ConnectionClosed):  # the last frames need no answer any more
                    stream.send("a")
            yield frame
