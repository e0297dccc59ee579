"""What a server makes of a request before it serves it: is it valid, its prompt as token ids, why it is refused.

The same for every server, wherever its front end runs. It keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from testbed.serving.requests import Request
from testbed.serving.tokens import Vocabulary

HOTTEST = 100.0
"""Highest temperature that is taken; beyond it every token is as likely as any other anyway."""

LEAST_TOP_P = 1e-45
"""Lowest top_p that is taken: a device holds it as a 32-bit float, and what is far smaller would be 0 there."""


class Refusal(NamedTuple):
    """Why a request is not served."""

    reason: str
    """As `testbed.serving.requests.Refused`."""
    detail: str


class Intake:
    """Looks at requests for a model with so long a context."""

    def __init__(self, vocabulary: Vocabulary, context_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._context = context_tokens

    def read(self, request: Request) -> list[int] | Refusal:
        """The prompt's ids, the client's own or the text's; or what is wrong with the request at first sight."""
        if problem := problem_with(request):
            return Refusal("invalid_request", problem)
        if request.prompt_ids:
            if len(request.prompt_ids) > self._context:
                return self._too_long(len(request.prompt_ids), "tokens", request)
            try:
                for token in request.prompt_ids:
                    self._vocabulary.token_bytes(token)
            except KeyError as error:
                return Refusal("invalid_request", f"there is no token {error}")
            return list(request.prompt_ids)
        # So long a text cannot fit whatever its tokens are: it is not worth the tokeniser's time.
        if len(request.prompt) // self._vocabulary.longest_token_bytes > self._context:
            return self._too_long(len(request.prompt), "characters", request)
        return self._vocabulary.encode(request.prompt)

    def misfit(self, request: Request, prompt: Sequence[int]) -> Refusal | None:
        """Why a request cannot be served now that its prompt is tokens, or None."""
        if not prompt:
            return Refusal("invalid_request", "the prompt is empty")
        if len(prompt) + request.max_tokens > self._context:
            return self._too_long(len(prompt), "tokens", request)
        return None

    def _too_long(self, length: int, unit: str, request: Request) -> Refusal:
        asked = f"{length} {unit} of prompt and {request.max_tokens} tokens of answer"
        return Refusal("context_length_exceeded", f"{asked} are more than the model's {self._context} tokens")


def problem_with(request: Request) -> str | None:
    """What makes a request invalid, or None."""
    sampling = request.sampling
    if request.max_tokens < 1:
        return f"max_tokens must be at least 1, not {request.max_tokens}"
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= HOTTEST):
        return f"temperature must be 0 to {HOTTEST:g}, not {sampling.temperature}"
    if not 0 < sampling.top_p <= 1:
        return f"top_p must be above 0 and at most 1, not {sampling.top_p}"
    if sampling.top_p < LEAST_TOP_P:
        return f"top_p must be at least {LEAST_TOP_P:g} (it is carried as a 32-bit float), not {sampling.top_p}"
    return None
