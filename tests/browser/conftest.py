"""The whole console for browser tests: `looplane up` on a state folder of its own, and Chromium logged in to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as TookTooLong

from testbed.command.places import SOURCE

CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
PASSWORD = "a fine horse for tests 9"
RESULTS = SOURCE / "test-results"
PATIENCE_MS = 60_000
"""How long a page may take for what it does at once: CI machines have two cores, and much else to do."""
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Console:
    """A console that is up, with people in it (tests.browser.people)."""

    address: str
    user: str
    """The first user, who has never logged in, and the printed one-time password."""
    password: str
    state: Path
    cookies: dict[str, list[Any]]
    """Of a session for each role."""

    def folder(self, run_id: str) -> Path:
        """A run's folder."""
        return self.state / "runs" / run_id

    def web_pid(self) -> int:
        """The web process."""
        supervisor = int((self.state / "run" / "supervisor.pid").read_text())
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                status, words = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if f"\nPPid:\t{supervisor}\n" in status and b"webui.serve" in words:
                return int(folder.name)
        raise AssertionError("the web process is not there")

    def kill_web(self) -> None:
        """Ends the web process without a word; the supervisor starts another."""
        os.kill(self.web_pid(), signal.SIGKILL)


def looplane(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    """The command, on this state folder."""
    return program("testbed.command", *words, state=state)


def program(module: str, *words: str, state: Path) -> subprocess.CompletedProcess[str]:
    """A module run as a program, on this state folder."""
    environment = {**os.environ, "LOOPLANE_STATE": str(state)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(
        command, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.fixture(scope="package")
def console() -> Iterator[Console]:
    """One for all modules of this folder: what a test needs of runs it makes itself. In /var/tmp, because the service
    user must get there."""
    state = Path(tempfile.mkdtemp(prefix="looplane-browser-", dir="/var/tmp"))
    state.chmod(0o755)
    try:
        done = looplane("up", "--port", "0", "--detach", state=state)
        found = re.search(r"Console\s+(\S+)\nUser\s+(\S+)\nPassword\s+(\S+)", done.stdout)
        assert found, done.stdout + done.stderr
        address = found[1].rstrip("/")
        people = program("tests.browser.people", address, PASSWORD, state=state)
        assert people.returncode == 0, people.stderr
        yield Console(address, found[2], found[3], state, json.loads(people.stdout))
    finally:
        looplane("stop", state=state)
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture(scope="package")
def seeded(console: Console) -> dict[str, str]:
    """Ids of runs of every standing, by name (tests.browser.seed); they belong to the runner."""
    done = program("tests.browser.seed", state=console.state)
    assert done.returncode == 0, done.stderr
    runs: dict[str, str] = json.loads(done.stdout)
    return runs


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser; every test has contexts of its own in it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), headless=True, args=CHROMIUM_FLAGS
        )
        yield browser
        browser.close()


@pytest.fixture
def allowed_errors() -> list[str]:
    """Patterns of console errors that a test brings about on purpose."""
    return []


Visit = Callable[..., Page]


def is_whole(page: Page) -> None:
    """Waits until the page of a finished run has folded all of its events."""
    page.wait_for_function("() => window.looplane?.verdict.stream.state === 'ended'")


def fits(page: Page) -> None:
    """Nothing reaches beside the window, once the page has come to rest. Says what does, and how far."""
    try:
        page.wait_for_function("() => document.scrollingElement.scrollWidth <= innerWidth", timeout=5_000)
    except TookTooLong:
        found = page.evaluate("""() => [...document.querySelectorAll("main *, header *")]
            .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
            .filter((one) => { for (let up = one.parentElement; up; up = up.parentElement)
                if (getComputedStyle(up).overflowX !== "visible") return false; return true; })
            .slice(0, 4)
            .map((one) => `${one.tagName}.${one.className}#${one.id} ${one.textContent.slice(0, 40)}`).join(", ")""")
        width = page.evaluate("document.scrollingElement.scrollWidth")
        raise AssertionError(f"{page.url}: {width} px wide: {found}") from None


@pytest.fixture
def stranger(
    chromium: Browser, console: Console, request: pytest.FixtureRequest, allowed_errors: list[str]
) -> Iterator[Visit]:
    """Opens pages in contexts of their own; any error on a page's console fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def visit(
        path: str = "/",
        *,
        width: int = 1440,
        height: int = 900,
        theme: str = "light",
        cookies: list[Any] | None = None,
        **options: Any,
    ) -> Page:
        context = chromium.new_context(
            base_url=console.address,
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        if cookies:
            context.add_cookies(cookies)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(path)
        return page

    yield visit
    report = getattr(request.node, "call_report", None)
    for number, context in enumerate(contexts):
        for page in context.pages:
            if report is not None and report.failed:
                RESULTS.mkdir(exist_ok=True)
                name = re.sub(r"\W+", "-", request.node.name)
                page.screenshot(path=RESULTS / f"{name}-{number}.png", full_page=True)
        context.close()
    unexpected = [error for error in errors if not any(re.search(pattern, error) for pattern in allowed_errors)]
    assert not unexpected, unexpected


@pytest.fixture
def page_as(stranger: Visit, console: Console) -> Visit:
    """Opens pages as somebody: `page_as("viewer", "/runs", theme="dark")`. Who there is: tests.browser.people."""

    def as_person(role: str, path: str = "/experiments", **options: Any) -> Page:
        return stranger(path, cookies=console.cookies[role], **options)

    return as_person


@pytest.fixture
def visit(page_as: Visit) -> Visit:
    """Opens pages as an admin."""

    def as_admin(path: str = "/", **options: Any) -> Page:
        return page_as("admin", path, **options)

    return as_admin


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.call_report = report  # type: ignore[attr-defined]
    return report
