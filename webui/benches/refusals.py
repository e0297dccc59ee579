"""What benches, leases and quotas refuse: one sentence for people, a code and a status for the API.

Knows no request and no page; whoever answers one turns a refusal into its own shape.
"""

from __future__ import annotations


class Refusal(Exception):
    """Something that was asked for and is not given. `str()` is the sentence."""

    status = 409
    """As HTTP would say it."""
    code = "refused"

    def __init__(self, sentence: str, *, path: str = "") -> None:
        self.path = path
        """The field that asked for it, where one did."""
        super().__init__(sentence)


class QuotaFull(Refusal):
    """The person has as much as they may have."""

    status = 429
    code = "quota"


class NoBenchFits(Refusal):
    """Every bench is known, and none could ever take the run."""

    status = 422
    code = "no_bench"


class BadRequest(Refusal):
    """A value that is not allowed."""

    status = 422
    code = "bad_request"


class NotYours(Refusal):
    """Somebody else's, or a right that the caller has not."""

    status = 403
    code = "forbidden"


class Taken(Refusal):
    """Somebody has it, or its state does not allow it."""

    status = 409
    code = "conflict"
