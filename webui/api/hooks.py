"""`/api/v1/webhooks`: one's webhooks and what became of their messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Field, Path, Query, Router, Schema, Status
from pydantic import ConfigDict, StrictBool, StrictStr

from webui.accounts.callers import Caller, caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.description import answers
from webui.api.errors import ApiError
from webui.api.schemas import ErrorOut
from webui.hooks import selectors, services
from webui.hooks.models import Delivery, Webhook

router = Router(tags=["webhooks"])

Event = Literal["run.queued", "run.started", "run.finished", "run.verdict"]
Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
Url = Annotated[
    StrictStr,
    Field(
        min_length=8,
        max_length=500,
        description="http or https, at a public address unless the installation allows others.",
        examples=["https://ci.example.org/looplane"],
    ),
]
Events = Annotated[list[Event], Field(min_length=1, max_length=4)]


class WebhookIn(Schema):
    """A webhook to be made."""

    model_config = ConfigDict(extra="forbid")

    url: Url
    events: Events = ["run.finished"]


class WebhookChange(Schema):
    """What is to be another; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    url: Url | None = None
    events: Events | None = None
    active: StrictBool | None = None


class WebhookOut(Schema):
    """A webhook. Its secret is not told again."""

    id: int
    url: str
    events: list[str]
    active: bool
    created_at: datetime


class WebhookMade(WebhookOut):
    """A webhook that has just been made."""

    secret: Annotated[str, Field(description="Key of the signatures; shown this once.")]


class WebhooksOut(Schema):
    """One's webhooks, newest first."""

    webhooks: list[WebhookOut]


class DeliveryOut(Schema):
    """A message to a webhook."""

    id: int
    event: str
    run: str | None
    attempts: int
    status: Annotated[int | None, Field(description="HTTP status of the last answer.")]
    fault: Annotated[str, Field(description="Why the last attempt does not count; empty when it does.")]
    created_at: datetime
    delivered_at: datetime | None
    due_at: Annotated[datetime | None, Field(description="Next attempt; null once delivered or given up.")]


class DeliveriesOut(Schema):
    """Messages, newest first."""

    deliveries: list[DeliveryOut]


_OF_HOOK = ("webhook", "webhook_change", "webhook_remove", "webhook_ping", "webhook_deliveries")


def _owner(request: HttpRequest) -> Caller:
    caller = caller_of(request)
    require(caller, Right.START)
    return caller


def _find(request: HttpRequest, hook_id: int) -> Webhook:
    hook = selectors.hook_get(owner=_owner(request).user, hook_id=hook_id)
    if hook is None:
        raise ApiError(404, "not_found", "There is no such webhook of yours.")
    return hook


def _told(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.pk,
        "url": hook.url,
        "events": hook.events,
        "active": hook.is_active,
        "created_at": hook.created_at,
    }


def _delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.pk,
        "event": delivery.event,
        "run": delivery.run_id,
        "attempts": delivery.attempts,
        "status": delivery.status,
        "fault": delivery.fault,
        "created_at": delivery.created_at,
        "delivered_at": delivery.delivered_at,
        "due_at": delivery.due_at,
    }


def _refused(fault: services.HookError) -> ApiError:
    if fault.field:
        return ApiError(422, "bad_webhook", str(fault), path=fault.field)
    return ApiError(409, "too_many_webhooks", str(fault))


@router.get("/webhooks", response={200: WebhooksOut}, summary="One's webhooks")
def webhooks(request: HttpRequest) -> dict[str, Any]:
    """Only one's own, for admins too."""
    return {"webhooks": [_told(hook) for hook in selectors.hook_list(owner=_owner(request).user)]}


@router.post(
    "/webhooks",
    response={201: WebhookMade, 409: ErrorOut},
    summary="Make a webhook",
    openapi_extra=answers(
        201,
        description="Made; keep the secret.",
        headers={"Location": "Where the webhook is."},
        links={name: {"hook_id": "$response.body#/id"} for name in _OF_HOOK},
    ),
)
def webhook_create(request: HttpRequest, response: HttpResponse, body: WebhookIn) -> Status[dict[str, Any]]:
    """Messages about one's own runs from now on. docs/guide/api.md shows how a receiver checks the signature."""
    try:
        hook, secret = services.hook_create(owner=_owner(request).user, url=body.url, events=body.events)
    except services.HookError as fault:
        raise _refused(fault) from None
    response.headers["Location"] = reverse("api:webhook", args=[hook.pk])
    return Status(201, {**_told(hook), "secret": secret})


@router.get("/webhooks/{hook_id}", response={200: WebhookOut, 404: ErrorOut}, url_name="webhook", summary="One webhook")
def webhook(request: HttpRequest, hook_id: Number) -> dict[str, Any]:
    """Without its secret."""
    return _told(_find(request, hook_id))


@router.patch("/webhooks/{hook_id}", response={200: WebhookOut, 404: ErrorOut}, summary="Change a webhook")
def webhook_change(request: HttpRequest, hook_id: Number, body: WebhookChange) -> dict[str, Any]:
    """Address, events, on and off. While it is off nothing is sent; what waits is sent once it is on again."""
    hook = _find(request, hook_id)
    try:
        return _told(services.hook_change(hook=hook, url=body.url, events=body.events, is_active=body.active))
    except services.HookError as fault:
        raise _refused(fault) from None


@router.delete("/webhooks/{hook_id}", response={204: None, 404: ErrorOut}, summary="Remove a webhook")
def webhook_remove(request: HttpRequest, hook_id: Number) -> Status[None]:
    """With its messages, also those that still wait."""
    services.hook_remove(hook=_find(request, hook_id))
    return Status(204, None)


@router.post(
    "/webhooks/{hook_id}/ping",
    response={202: DeliveryOut, 404: ErrorOut},
    summary="Send a test message",
    openapi_extra=answers(
        202,
        links={
            "webhook_redeliver": {"hook_id": "$request.path.hook_id", "delivery_id": "$response.body#/id"},
        },
    ),
)
def webhook_ping(request: HttpRequest, hook_id: Number) -> Status[dict[str, Any]]:
    """Event `ping`, signed and sent like any other; its delivery says what became of it."""
    return Status(202, _delivery(services.hook_ping(hook=_find(request, hook_id))))


@router.get("/webhooks/{hook_id}/deliveries", response={200: DeliveriesOut, 404: ErrorOut}, summary="Its messages")
def webhook_deliveries(
    request: HttpRequest, hook_id: Number, limit: Annotated[int, Query(ge=1, le=100)] = 25
) -> dict[str, Any]:
    """The newest, with status and reason; they are kept for 30 days."""
    rows = selectors.delivery_list(hook=_find(request, hook_id))[:limit]
    return {"deliveries": [_delivery(row) for row in rows]}


@router.post(
    "/webhooks/{hook_id}/deliveries/{delivery_id}/redeliver",
    response={202: DeliveryOut, 404: ErrorOut},
    summary="Send a message again",
)
def webhook_redeliver(request: HttpRequest, hook_id: Number, delivery_id: Number) -> Status[dict[str, Any]]:
    """The same body under the same `Looplane-Delivery`, signed anew."""
    hook = _find(request, hook_id)
    delivery = selectors.delivery_get(hook=hook, delivery_id=delivery_id)
    if delivery is None:
        raise ApiError(404, "not_found", "There is no such message of this webhook.")
    services.delivery_again(delivery=delivery)
    delivery.refresh_from_db()
    return Status(202, _delivery(delivery))
