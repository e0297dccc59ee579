"""What several tests here need: a real server of the API on the loopback, and a pair of real soft RNICs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulators.in_process import PacedServer
from emulators.nic_pair import LinkedNamespaces, NicPair
from emulators.openai_api import listen, make_application
from testbed.events.log import Record, read_log
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.server_address import server_of
from testbed.experiment.sweep import Place
from testbed.serving.tokens import DeepSeekVocabulary, deepseek_vocabulary

API_KEY = "sk-looplane-test"


def plan_for(folder: Path, *, dilation: float = 1.0, kind: str = "blink", **parameters: object) -> Plan:
    """The plan of one server without a workload."""
    tables = {
        "name": "api-test", "title": "API", "dilation": dilation, "byte_scale": 100,
        "systems": {"server": {"kind": kind, **parameters}}, "workload": {"requests": 0},
    }  # fmt: skip
    spec = spec_from_tables(tables, "test")
    return compile_plan(spec, Place("server", (), 0), run=folder.name, label="0a0b0c", clock="wall")


class RunningServer:
    """An in-process server in a thread of its own."""

    def __init__(self, folder: Path, plan: Plan, vocabulary: DeepSeekVocabulary, api_key: str | None) -> None:
        self.folder = folder
        self.plan = plan
        self.front = server_of(plan).name
        """The node that clients speak to."""
        self.port = 0
        self._up = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(vocabulary, api_key), daemon=True)
        self._thread.start()
        assert self._up.wait(30)
        if self._failure is not None:
            raise self._failure

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, function: Callable[[PacedServer], None]) -> None:
        """Runs `function` in the server's loop."""
        self._loop.call_soon_threadsafe(function, self._server)

    def events(self, node: str) -> list[Record]:
        path = self.folder / "events" / f"{node}.jsonl"
        return list(read_log(path)) if path.exists() else []

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self, vocabulary: DeepSeekVocabulary, api_key: str | None) -> None:
        try:
            asyncio.run(self._serve(vocabulary, api_key))
        except BaseException as error:  # noqa: BLE001  # told to whoever waits
            self._failure = error
        finally:
            self._up.set()

    async def _serve(self, vocabulary: DeepSeekVocabulary, api_key: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = PacedServer(self.plan, self.folder, vocabulary)
        application = make_application(self._server.port, dilation=self.plan.dilation, api_key=api_key)
        runner, self.port = await listen(application, "127.0.0.1", 0)
        try:
            self._server.start()
            self._up.set()
            await self._server.ended
        finally:
            self._server.close()
            await runner.cleanup()


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """Makes the plan of a Blink server with parameters of one's own."""
    return plan_for


@pytest.fixture(scope="session")
def vocabulary() -> DeepSeekVocabulary:
    return deepseek_vocabulary()


@pytest.fixture(scope="module")
def start_server(
    vocabulary: DeepSeekVocabulary, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RunningServer]]:
    """Starts servers with parameters of their own; all are stopped at the end of the module."""
    running: list[RunningServer] = []

    def start(*, dilation: float = 1.0, api_key: str | None = None, **parameters: object) -> RunningServer:
        folder = tmp_path_factory.mktemp("run")
        plan = plan_for(folder, dilation=dilation, **parameters)
        running.append(RunningServer(folder, plan, vocabulary, api_key))
        return running[-1]

    yield start
    for server in running:
        server.close()


SMALL: dict[str, dict[str, object]] = {
    "blink": {"slots": 64, "max_batch": 16, "input_arena_tokens": 65536, "token_arena_tokens": 65536},
    "host-driven": {"queue_limit": 64, "max_batch": 16},
}
"""Every kind of system that speaks text, at a size for tests."""


@pytest.fixture(scope="module", params=SMALL)
def server(start_server: Callable[..., RunningServer], request: pytest.FixtureRequest) -> RunningServer:
    """A small server of Llama-3 8B, of each kind in turn."""
    return start_server(kind=request.param, **SMALL[request.param])


@pytest.fixture
def pair() -> Iterator[NicPair]:
    """A pair of soft RNICs of its own, for tests that break something."""
    with NicPair() as pair:
        yield pair


@pytest.fixture
def namespaces() -> Iterator[LinkedNamespaces]:
    """Two network namespaces that a pair may be put into."""
    with LinkedNamespaces() as namespaces:
        yield namespaces
