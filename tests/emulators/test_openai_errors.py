import json

import pytest

from emulators import openai_errors
from testbed.serving.requests import Refused


@pytest.mark.parametrize(
    ("reason", "status", "code", "param", "retry"),
    [
        ("ring_full", 429, "rate_limit_exceeded", None, "1"),
        ("context_length_exceeded", 400, "context_length_exceeded", "messages", None),
        ("invalid_request", 400, "invalid_request", "messages", None),
        ("unavailable", 503, "unavailable", None, "1"),
        ("cancelled", 503, "cancelled", None, None),
        ("internal", 500, "internal", None, None),
        ("something new", 500, "internal", None, None),
    ],
)
def test_every_refusal_has_its_answer(reason, status, code, param, retry):
    error = openai_errors.of_refusal(Refused("r", reason, "what happened"), "messages")
    body = json.loads(error.body)["error"]
    assert (error.status, body["code"], body["param"]) == (status, code, param)
    assert body["message"] == "what happened"
    assert error.headers.get("retry-after") == retry


def test_body_is_openais_and_ascii():
    error = openai_errors.bad_request("no “such” thing", "n", "c")
    assert error.body.isascii()
    assert json.loads(error.body) == {
        "error": {"message": "no “such” thing", "type": "invalid_request_error", "param": "n", "code": "c"}
    }
