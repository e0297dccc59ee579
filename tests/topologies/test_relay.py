"""The relay from loopback into a run's namespace: bytes, ends, resets, and nothing of the host touched."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_tree import wait_for

from topologies.namespaces import network_of
from topologies.programs import run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


class Server:
    """A listener inside a network namespace, driven by the test."""

    def __init__(self) -> None:
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        end = time.monotonic() + 10
        mine = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self.holder.pid}/ns/net").readlink() == mine and time.monotonic() < end:
            time.sleep(0.01)
        with network_of(self.holder.pid):
            run(["ip", "link", "set", "lo", "up"])
            self.socket = socket.create_server(("127.0.0.1", 8000))
        self.socket.settimeout(10)

    def close(self) -> None:
        self.socket.close()
        self.holder.kill()
        self.holder.wait()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def port(server: Server, tmp_path: Path) -> Iterator[int]:
    ready = tmp_path / "relay.json"
    words = ["--network", str(server.holder.pid), "--target", "127.0.0.1:8000", "--ready", str(ready)]
    with subprocess.Popen([sys.executable, "-m", "topologies.relay", *words], text=True) as process:
        wait_for(ready, process)
        yield json.loads(ready.read_text())["port"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def connected(server: Server, port: int) -> tuple[socket.socket, socket.socket]:
    near = socket.create_connection(("127.0.0.1", port), timeout=10)
    far, _ = server.socket.accept()
    far.settimeout(10)
    return near, far


def test_bytes_go_both_ways_at_once(server: Server, port: int) -> None:
    near, far = connected(server, port)
    data = os.urandom(3_000_000)
    with near, far:
        def send(side: socket.socket) -> None:
            side.sendall(data)
            side.shutdown(socket.SHUT_WR)

        def receive(side: socket.socket) -> bytes:
            return b"".join(iter(lambda: side.recv(1 << 16), b""))

        threads = [threading.Thread(target=send, args=(side,)) for side in (near, far)]
        for thread in threads:
            thread.start()
        got: dict[str, bytes] = {}
        reader = threading.Thread(target=lambda: got.update(far=receive(far)))
        reader.start()
        got["near"] = receive(near)
        for thread in (*threads, reader):
            thread.join(30)
        assert got == {"near": data, "far": data}


def test_a_small_write_is_not_held_back(server: Server, port: int) -> None:
    near, far = connected(server, port)
    with near, far:
        for number in range(20):  # Nagle and delayed ACKs together would hold each back for 40 ms
            near.send(b"a")
            near.send(b"%d" % (number % 10))
            while len(far.recv(2, socket.MSG_PEEK)) < 2:
                time.sleep(0.0005)
            assert far.recv(2) == b"a%d" % (number % 10)


def test_a_client_that_leaves_is_seen_by_the_server(server: Server, port: int) -> None:
    near, far = connected(server, port)
    with far:
        near.close()
        assert far.recv(10) == b""
        # It streams on into nothing: that must fail before long, or an answer would go on for ever.
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            stream_on(far)


def stream_on(side: socket.socket) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        side.sendall(b"x" * 1000)
        time.sleep(0.01)


def receives_no_more(side: socket.socket) -> bool:
    try:
        return side.recv(10) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("after_s", [0, 0.2])
def test_a_reset_is_passed_on(server: Server, port: int, after_s: float) -> None:
    for _ in range(5):
        near, far = connected(server, port)
        with near:
            time.sleep(after_s)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            far.close()
            assert receives_no_more(near)


def test_no_server_is_a_refused_connection(server: Server, port: int) -> None:
    server.socket.close()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as near:
        assert receives_no_more(near)


def test_it_listens_on_loopback_only(server: Server, port: int) -> None:
    shown = run(["ss", "-Hltn", f"sport = :{port}"])
    assert [line.split()[3] for line in shown.splitlines()] == [f"127.0.0.1:{port}"]
