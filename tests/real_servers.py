"""A PostgreSQL and a Redis of the tests' own, on loopback: started, killed and started again, gone afterwards.

Both ask for a password, so that what names them can be tested for keeping it to itself.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

PASSWORD = "tell-n0body"
PATIENCE_S = 20.0


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """A process on a port, with a folder of its own. `user` is who runs it where root would not."""

    def __init__(self, name: str, user: str) -> None:
        entry = pwd.getpwnam(user) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.folder = Path(tempfile.mkdtemp(prefix=f"looplane-{name}-", dir="/var/tmp"))
        os.chown(self.folder, self.uid, self.gid)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As the console takes it."""
        raise NotImplementedError

    def words(self) -> Sequence[str]:
        """Its command."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it takes work."""
        raise NotImplementedError

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A program of its own, as its user."""
        root = os.geteuid() == 0
        return subprocess.run(
            words, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "PGPASSWORD": PASSWORD, "REDISCLI_AUTH": PASSWORD},
            user=self.uid if root else None, group=self.gid if root else None, extra_groups=[] if root else None,
        )  # fmt: skip

    def start(self) -> None:
        """Starts it, on what it kept; returns when it answers."""
        root = os.geteuid() == 0
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words(), cwd=self.folder, stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_us,
                user=self.uid if root else None, group=self.gid if root else None, extra_groups=[] if root else None,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """`kill -9` of it and of what it has started, as a machine's power does."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def close(self) -> None:
        """Ends it and removes its folder."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _end_with_us() -> None:
    """In the child: a test run that is killed leaves no server behind. SIGQUIT ends both at once."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


class Postgres(Server):
    """A cluster without fsync: what survives a killed process is all that is asked of it."""

    def __init__(self, programs: Path) -> None:
        super().__init__("pg", "postgres")
        self._programs = programs
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        os.chown(secret, self.uid, self.gid)
        done = self.run(
            str(programs / "initdb"), "--pgdata", "data", "--username", "looplane", "--pwfile", "secret", "--auth",
            "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Of another database of the cluster."""
        return f"postgresql://looplane:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Makes a database; its address."""
        done = self.run(str(self._programs / "createdb"), "--host", "127.0.0.1", "--port", str(self.port),
                        "--username", "looplane", database)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return self.url_of(database)

    def ask(self, question: str, database: str = "postgres") -> str:
        """What psql prints for one statement."""
        done = self.run(str(self._programs / "psql"), self.url_of(database), "--tuples-only", "--no-align",
                        "--no-psqlrc", "--command", question)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def words(self) -> Sequence[str]:
        # mmap: a killed server leaves its shared memory in its own folder, not in /dev/shm.
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
                    "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "32MB",
                    "dynamic_shared_memory_type": "mmap"}  # fmt: skip
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", "data", "-p", str(self.port), *flags]

    def answers(self) -> bool:
        # pg_isready says yes to a server that is still recovering for others; a question has to be answered.
        done = self.run(str(self._programs / "psql"), self.url, "--no-psqlrc", "--command", "select 1")
        return done.returncode == 0


class Redis(Server):
    """Keeps nothing on disk, so that a killed one has forgotten every message."""

    def __init__(self, program: str) -> None:
        super().__init__("redis", "nobody")
        self._program = program

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def words(self) -> Sequence[str]:
        return [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", PASSWORD,
                "--save", "", "--appendonly", "no", "--dir", str(self.folder)]  # fmt: skip

    def answers(self) -> bool:
        with socket.socket() as connection:
            connection.settimeout(1)
            try:
                connection.connect(("127.0.0.1", self.port))
                connection.sendall(f"AUTH {PASSWORD}\r\nPING\r\n".encode())
                with connection.makefile("rb") as said:
                    return said.readline() == b"+OK\r\n" and said.readline() == b"+PONG\r\n"
            except OSError:
                return False


def postgres_programs() -> Path | None:
    """The newest PostgreSQL's programs: Debian keeps initdb out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


S = TypeVar("S", bound=Server)


def started(make: Callable[[], S]) -> S:
    """A server that answers; nothing is left of one that does not."""
    server = make()
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server
