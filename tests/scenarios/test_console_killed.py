"""`kill -9` of the console's parts and servers under a live emulation, on PostgreSQL and Redis, with a page open.

Worker, web, Redis and PostgreSQL are nothing to the run: it goes on, its row stays true, and the page says within
5 s what is wrong and comes back by itself. runnerd takes the run with it, and the page says that. What comes after
works. Known faults E8, E14, F6. Each kill once; with `--soak` 20 of each at random moments. Under the embedded
database and queue the same is done by test_accidents_of_the_console.py.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from accidents import leftovers
from consoles import Console, until
from playwright.sync_api import Browser, Page, expect, sync_playwright
from test_accidents import SEED

from tests.browser.conftest import CHROMIUM_FLAGS
from tests.real_servers import Postgres, Redis

import host_state  # isort: skip  # accidents has put its folder on the path

pytestmark = [pytest.mark.root, pytest.mark.browser]
SAID_WITHIN_MS = 5_000
"""What the page has for saying what happened, asked of it in --soak, on a machine that has nothing else to do."""
BUSY_TIMES = 3
"""How many times as long it has in a suite beside whatever else a machine does."""
BACK_WITHIN_S = 40.0
"""Most of it is the supervisor's wait before it starts again what dies again and again."""
SOAK_KILLS = 20
LATEST_S = 1.0


@pytest.fixture(scope="module")
def console(postgres_server: Postgres, redis_server: Redis) -> Iterator[Console]:
    """One for all kills."""
    servers = {"DATABASE_URL": postgres_server.create("killed"), "REDIS_URL": redis_server.url}
    made = Console("--bench", "killed", environment=servers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


class Scene:
    """A live emulation with its page open."""

    def __init__(
        self, console: Console, browser: Browser, servers: dict[str, Postgres | Redis], *, said_within_ms: float
    ) -> None:
        self.console, self.servers, self.said_within_ms = console, servers, said_within_ms
        self.queued: list[str] = []
        """What was started meanwhile, and waits for this run to end."""
        self.before = host_state.snapshot()
        self.run = console.start_and_see_tokens()
        self.context = browser.new_context(base_url=console.address)
        self.context.add_cookies(console.cookies())
        self.page: Page = self.context.new_page()
        self.page.goto(f"/runs/{self.run}")
        self.words = self.page.locator("#state-words")
        self.is_live()

    def is_live(self) -> None:
        """The page follows, and the run goes on."""
        expect(self.words).to_contain_text("of model time", timeout=BACK_WITHIN_S * 1000)
        there = self.console.bytes_of(self.run)
        until(lambda: self.console.bytes_of(self.run) > there or None, "no more events")
        assert self.console.row(self.run).state == "running"

    def says(self, words: str | re.Pattern[str]) -> None:
        """The page, in time."""
        expect(self.words).to_contain_text(words, timeout=self.said_within_ms)

    # --- what is killed; each ends with a page that is live again ---

    def kill_worker(self) -> None:
        """The next worker adopts the run; the page has nothing to say, since nothing stopped."""
        attempts, there = self.console.row(self.run).attempts, self.console.bytes_of(self.run)
        self.console.kill("webui.celery")
        until(lambda: self.console.bytes_of(self.run) > there or None, "no more events", self.said_within_ms / 1000)
        followed = partial(self._is_followed_anew, attempts)
        until(followed, f"nobody has taken it up: {self.console.row(self.run)}", BACK_WITHIN_S)

    def _is_followed_anew(self, attempts: int) -> bool | None:
        return self.console.row(self.run).attempts > attempts or None

    def kill_web(self) -> None:
        """The listening socket outlives it, so that the page only waits."""
        victim = self.console.kill("webui.serve")
        self.says("The console does not answer.")
        until(lambda: self.console.successor("webui.serve", victim), "no other web process", BACK_WITHIN_S)

    def kill_redis(self) -> None:
        """Every message is gone. A run that is started meanwhile waits, truly queued, and is made up for."""
        redis = self.servers["redis"]
        redis.kill()
        queued = self.console.start("sim")
        assert self.console.row(queued).state == "queued"
        self.says("of model time")
        redis.start()
        self.queued.append(queued)

    def kill_postgres(self) -> None:
        """Pages and API say 503 and when to come back; the run does not notice."""
        postgres, there = self.servers["postgres"], self.console.bytes_of(self.run)
        postgres.kill()
        try:
            self.says("The console's database does not answer.")
            answer = self.console.ask(f"/runs/{self.run}")
            assert (answer.status, answer.body["error"]["code"]) == (503, "unavailable")
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            page = self.context.request.get("/runs")
            assert page.status == 503
            assert "The database does not answer" in page.text()
            until(lambda: self.console.bytes_of(self.run) > there or None, "no more events")
        finally:
            postgres.start()
        until(lambda: self.console.ask(f"/runs/{self.run}").status == 200 or None, "it does not come back", 15)

    def close_every_tab(self) -> None:
        """Fault F6."""
        there = self.console.bytes_of(self.run)
        self.page.close()
        until(lambda: self.console.bytes_of(self.run) > there or None, "no more events")
        self.page = self.context.new_page()
        self.page.goto(f"/runs/{self.run}")
        self.words = self.page.locator("#state-words")

    def kill_runnerd(self) -> None:
        """The whole run hangs on it: lost, said, and nothing is left."""
        self.console.kill("runnerd")
        self.says(re.compile("The privileged runner does not answer|of model time in"))  # or it is over by then
        row = self.console.ended(self.run, BACK_WITHIN_S)
        assert (row.outcome, row.detail) == ("lost", "the runner ended while this run was under way")
        assert self.console.outcome_in_folder(self.run) == "lost"
        expect(self.page.locator("#outcome-words")).to_contain_text("The runner ended", timeout=self.said_within_ms)
        assert leftovers(self.before, self.run.rpartition("-")[2]) == []

    def close(self) -> None:
        """Ends what is still open."""
        self.context.close()


WATCHERS: dict[str, Callable[[Scene], None]] = {
    "worker": Scene.kill_worker,
    "web": Scene.kill_web,
    "redis": Scene.kill_redis,
    "postgres": Scene.kill_postgres,
    "every tab": Scene.close_every_tab,
}
"""What a run does not depend on."""


@pytest.fixture
def open_scene(
    console: Console, chromium: Browser, postgres_server: Postgres, redis_server: Redis, soak: bool
) -> Iterator[Callable[[], Scene]]:
    scenes: list[Scene] = []
    patience = SAID_WITHIN_MS * (1 if soak else BUSY_TIMES)
    servers: dict[str, Postgres | Redis] = {"postgres": postgres_server, "redis": redis_server}

    def make() -> Scene:
        scenes.append(Scene(console, chromium, servers, said_within_ms=patience))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_part_killed_under_a_run(
    open_scene: Callable[[], Scene], console: Console, soak: bool, soak_note: Callable[[str], None]
) -> None:
    moments = random.Random(f"{SEED} console")
    rounds = SOAK_KILLS if soak else 1
    for _ in range(rounds):
        scene = open_scene()
        for name in moments.sample(sorted(WATCHERS), len(WATCHERS)):
            moment = moments.uniform(0, LATEST_S)
            print(f"{name}: seed {SEED}, after {moment:.3f} s")
            time.sleep(moment)
            began = time.monotonic()
            WATCHERS[name](scene)
            scene.is_live()
            print(f"{name}: live again {time.monotonic() - began:.1f} s after its kill")
        scene.kill_runnerd()
        assert [console.ended(run).outcome for run in scene.queued] == ["passed"]
        scene.close()
    after = console.start("sim")
    assert console.ended(after).outcome == "passed"
    soak_note(f"{rounds} kill -9 each of worker, web, Redis, PostgreSQL and runnerd: runs in a true state, leftovers 0")
