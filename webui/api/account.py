"""`/api/v1/me`, `/tokens`, `/health`: who calls, the caller's own tokens, and whether the console is well."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db import connection
from django.http import HttpRequest
from ninja import Path, Router, Schema, Status

from webui.accounts import selectors, services
from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.errors import ApiError
from webui.api.schemas import ErrorOut

router = Router(tags=["account"])


class MeOut(Schema):
    """The caller, and what they may do by the way they came."""

    user: str
    role: Literal["viewer", "runner", "instructor", "admin"]
    groups: list[str]
    rights: list[str]
    by: Literal["token", "session"]


@router.get("/me", response={200: MeOut}, summary="Who calls")
def me(request: HttpRequest) -> dict[str, Any]:
    """A token's rights are those of its owner's role that its scopes leave."""
    caller = caller_of(request)
    return {
        "user": caller.user.username,
        "role": caller.user.role,
        "groups": sorted(caller.user.groups.values_list("name", flat=True)),
        "rights": sorted(right.value for right in caller.rights),
        "by": "session" if caller.token is None else "token",
    }


class TokenOut(Schema):
    """A token of the caller's; the secret itself is nowhere."""

    id: int
    name: str
    start: str
    scopes: list[Literal["read", "run", "admin"]]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    current: bool


class TokensOut(Schema):
    """The caller's tokens that still work, newest first."""

    tokens: list[TokenOut]


@router.get("/tokens", response={200: TokensOut}, summary="One's own tokens")
def tokens(request: HttpRequest) -> dict[str, Any]:
    """Tokens are made on the account page, so that no token can make another."""
    caller = caller_of(request)
    require(caller, Right.READ)
    return {
        "tokens": [
            {
                "id": token.pk,
                "name": token.name,
                "start": token.start,
                "scopes": token.scopes,
                "created_at": token.created_at,
                "expires_at": token.expires_at,
                "last_used_at": token.last_used_at,
                "current": caller.token is not None and caller.token.pk == token.pk,
            }
            for token in selectors.token_list(user=caller.user)
        ]
    }


@router.delete("/tokens/{token_id}", response={204: None, 404: ErrorOut}, summary="Revoke a token of one's own")
def token_revoke(
    request: HttpRequest, token_id: Annotated[int, Path(ge=1, le=2**63 - 1, description="`id` of the list.")]
) -> Status[None]:
    """A token can revoke itself only (a job that is done with it); a session can revoke any of its owner's."""
    caller = caller_of(request)
    if caller.token is not None and caller.token.pk != token_id:
        raise ApiError(403, "forbidden", "A token can revoke itself only; the account page revokes others.")
    if not services.token_revoke(user=caller.user, token_id=token_id):
        raise ApiError(404, "not_found", "There is no such working token of yours.")
    return Status(204, None)


class HealthOut(Schema):
    """Sound, as far as this process can tell."""

    status: Literal["ok"]


@router.get("/health", response={200: HealthOut}, auth=None, summary="Whether the console answers")
def api_health(request: HttpRequest) -> dict[str, str]:
    """200 while the web process and its database answer; else 503. Needs no token and says nothing more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return {"status": "ok"}
