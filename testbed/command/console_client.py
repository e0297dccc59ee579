"""A console's REST API as `looplane remote` uses it: one method a call, patient with what passes, plain about the rest.

Knows HTTP and the API's shapes (docs/guide/api.md), not what the answers are for. A request that can be repeated
(every one: the POST carries an Idempotency-Key) is repeated while the console is away or asks to come back later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from testbed.command.exit_codes import CommandError, ExitCode

WAIT_S = 25.0
"""Longest that one call asks the console to hold its answer; proxies commonly cut at 30 s."""
LONGEST_PAUSE_S = 15.0
_PASSING = (429, 502, 503, 504)
_NOT_YOURS = {401: "the token is not known, has expired or was revoked", 403: "the token may not do this"}


class ConsoleClient:
    """One console, one token. `patience_s` bounds how long it is tried again while it does not answer."""

    def __init__(self, url: str, token: str, *, patience_s: float, say: Callable[[str], None]) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._say = say
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "User-Agent": "looplane-remote"},
            timeout=httpx.Timeout(10.0, read=WAIT_S + 35.0),
        )

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def start(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        """Queues a run; the same key again brings back the same run."""
        return self._json("POST", "runs", json=body, headers={"Idempotency-Key": key})

    def run(self, run_id: str, *, wait_s: float = 0.0) -> dict[str, Any]:
        """The run as it stands, or once it has ended or `wait_s` is over."""
        return self._json("GET", f"runs/{quote(run_id, safe='')}", params={"wait": min(wait_s, WAIT_S)})

    def runs(self, **filters: str | int) -> list[dict[str, Any]]:
        """The newest runs that the token may read."""
        found: list[dict[str, Any]] = self._json("GET", "runs", params=filters)["runs"]
        return found

    def cancel(self, run_id: str) -> None:
        """Asks the run to end; one that has ended already is no fault."""
        self._send("POST", f"runs/{quote(run_id, safe='')}/cancel", allowed=(409,))

    def junit(self, run_id: str) -> bytes:
        """The verdict as JUnit XML."""
        answer = self._send("GET", f"runs/{quote(run_id, safe='')}/verdict", headers={"Accept": "application/xml"})
        return answer.content

    def trace(self, run_id: str) -> bytes:
        """The Perfetto trace."""
        return self._send("GET", f"runs/{quote(run_id, safe='')}/export/perfetto").content

    def artifacts(self, run_id: str) -> list[dict[str, Any]]:
        """Name and size of each file that the run has left."""
        found: list[dict[str, Any]] = self._json("GET", f"runs/{quote(run_id, safe='')}/artifacts")["artifacts"]
        return found

    def download(self, run_id: str, name: str, target: Path) -> None:
        """One artifact into `target`, which is there whole or not at all."""
        path = f"runs/{quote(run_id, safe='')}/artifacts/{quote(name)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            for attempt in self._attempts():
                try:
                    with self._http.stream("GET", path) as answer:
                        if answer.status_code in _PASSING:
                            attempt(f"answers {answer.status_code}", _asked_pause(answer))
                            continue
                        if answer.is_error:
                            answer.read()
                        self._check(answer)
                        with part.open("wb") as file:
                            for chunk in answer.iter_bytes():
                                file.write(chunk)
                    part.replace(target)
                    return
                except httpx.TransportError as fault:
                    attempt(_words(fault), None)
        finally:
            part.unlink(missing_ok=True)

    # --- one request -----------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, **rest: Any) -> dict[str, Any]:
        answer = self._send(method, path, **rest)
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise CommandError(f"{self.url}: no Looplane console answers there ({path} is no JSON object)",
                               ExitCode.BAD_INPUT)  # fmt: skip
        return value

    def _send(self, method: str, path: str, *, allowed: tuple[int, ...] = (), **rest: Any) -> httpx.Response:
        for attempt in self._attempts():
            try:
                answer = self._http.request(method, path, **rest)
            except httpx.TransportError as fault:
                attempt(_words(fault), None)
                continue
            if answer.status_code in _PASSING:
                attempt(_refusal(answer), _asked_pause(answer))
                continue
            if answer.status_code not in allowed:
                self._check(answer)
            return answer
        raise AssertionError("attempts end by an exception")

    def _attempts(self) -> Iterator[Callable[[str, float | None], None]]:
        """Yields until patience ends; what it yields is told why the attempt was in vain, and pauses or raises."""
        end, pause, told = time.monotonic() + self._patience_s, 0.5, False

        def in_vain(why: str, asked: float | None) -> None:
            nonlocal pause, told
            wait = min(asked if asked is not None else pause, LONGEST_PAUSE_S)
            pause = min(pause * 2, LONGEST_PAUSE_S)
            if time.monotonic() + wait > end:
                raise CommandError(f"{self.url}: {why}; gave up after {self._patience_s:g} s", ExitCode.HOST_CANNOT)
            if not told:
                self._say(f"{self.url}: {why}; trying again")
                told = True
            time.sleep(wait)

        while True:
            yield in_vain

    def _check(self, answer: httpx.Response) -> None:
        """Raises CommandError with the console's own sentence for a refusal."""
        if answer.is_success:
            return
        if answer.is_redirect:
            raise CommandError(f"{self.url}: answers with a redirect to {answer.headers.get('Location', '?')}; "
                               "give that address", ExitCode.BAD_INPUT)  # fmt: skip
        words = _NOT_YOURS.get(answer.status_code)
        said = _refusal(answer)
        code = ExitCode.ERRORED if answer.status_code >= 500 else ExitCode.BAD_INPUT
        raise CommandError(f"{self.url}: {f'{words}: ' if words else ''}{said}", code)


def _refusal(answer: httpx.Response) -> str:
    """The API's one error shape on one line; the status where somebody else answered."""
    try:
        error = answer.json()["error"]
        path = f"{error['path']}: " if error.get("path") and error["path"] not in error["message"] else ""
        return " ".join(f"{path}{error['message']}".split())
    except (ValueError, KeyError, TypeError):
        return f"answers {answer.status_code} {answer.reason_phrase}"


def _asked_pause(answer: httpx.Response) -> float | None:
    told = answer.headers.get("Retry-After", "")
    return float(told) if told.isdecimal() else None


def _words(fault: httpx.TransportError) -> str:
    return f"does not answer ({' '.join(str(fault).split()) or type(fault).__name__})"
