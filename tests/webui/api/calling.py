"""A CI job with a token, and the one shape of refusals."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from webui.accounts import services as accounts
from webui.accounts.models import User

API = "/api/v1"
RUNS = f"{API}/runs"


class Caller:
    """Calls the API with a token of its own."""

    def __init__(self, user: User) -> None:
        self._client = Client()
        self.secret = accounts.token_create(user=user, name="ci")[1]

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self._client.generic(
            method,
            path,
            b"" if body is None else json.dumps(body).encode(),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.secret}", **headers},
        )


def error(response: Any) -> dict[str, Any]:
    """What a refusal says, once its shape is right."""
    told = response.json()
    assert set(told) == {"error"}
    assert set(told["error"]) <= {"code", "message", "path"}
    assert told["error"]["message"]
    found: dict[str, Any] = told["error"]
    return found


def content(response: Any) -> bytes:
    """The whole body, streamed or not."""
    return b"".join(response.streaming_content) if response.streaming else response.content
