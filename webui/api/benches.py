"""`/api/v1/benches` and `/leases`: machines that carry runs out, and holding one for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Path, Router, Schema, Status
from pydantic import ConfigDict, StrictStr

from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.description import answers
from webui.api.errors import ApiError
from webui.api.schemas import ErrorOut, Whole
from webui.benches.leases import lease_extend, lease_release, lease_take
from webui.benches.models import Bench, Lease
from webui.benches.selectors import lease_get
from webui.benches.situation import bench_standing, leases_open

router = Router(tags=["benches"])

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
Minutes = Annotated[Whole, Field(ge=1, le=1440, description="Within one's quota.")]


class LeaseOut(Schema):
    """A bench that is somebody's for a while: only their runs start there."""

    id: int
    bench: str
    holder: str
    purpose: str
    begins_at: datetime
    ends_at: datetime


class BenchOut(Schema):
    """A machine with a worker."""

    name: str
    health: Literal["well", "ill", "away"]
    reason: Annotated[str, Field(description="Why it takes no runs; empty while it does.")]
    open: Annotated[bool, Field(description="False: an admin has closed it.")]
    tags: list[str]
    abilities: Annotated[dict[str, bool | str], Field(description="True, or the sentence that says why not.")]
    seen_at: datetime | None
    lease: LeaseOut | None


class BenchesOut(Schema):
    """All benches, by name."""

    benches: list[BenchOut]


class LeasesOut(Schema):
    """The leases that are open now."""

    leases: list[LeaseOut]


class LeaseIn(Schema):
    """A lease to be taken."""

    model_config = ConfigDict(extra="forbid")

    bench: Annotated[StrictStr, Field(min_length=1, max_length=40, examples=["bench-1"])]
    minutes: Minutes
    purpose: Annotated[StrictStr, Field(max_length=120)] = ""


class LeaseLonger(Schema):
    """By how much a lease is to end later."""

    model_config = ConfigDict(extra="forbid")

    minutes: Minutes


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.pk,
        "bench": lease.bench_id,
        "holder": lease.holder.username,
        "purpose": lease.purpose,
        "begins_at": lease.begins_at,
        "ends_at": lease.ends_at,
    }


@router.get("/benches", response={200: BenchesOut}, summary="The benches")
def benches(request: HttpRequest) -> dict[str, Any]:
    """How each stands, what it can do, and who holds it until when."""
    require(caller_of(request), Right.READ)
    now = timezone.now()
    held = {lease.bench_id: lease for lease in leases_open(now=now)}
    told = []
    for bench in Bench.objects.order_by("name"):
        health, reason = bench_standing(bench, now=now)
        told.append(
            {
                "name": bench.pk,
                "health": health.value,
                "reason": reason,
                "open": bench.is_open,
                "tags": bench.tags,
                "abilities": bench.abilities,
                "seen_at": bench.seen_at,
                "lease": _lease(held[bench.pk]) if bench.pk in held else None,
            }
        )
    return {"benches": told}


@router.get("/leases", response={200: LeasesOut}, summary="Leases that are open")
def leases(request: HttpRequest) -> dict[str, Any]:
    """Everybody's, since a bench that is held is held for all."""
    require(caller_of(request), Right.READ)
    return {"leases": [_lease(lease) for lease in leases_open(now=timezone.now()).order_by("bench")]}


@router.post(
    "/leases",
    response={201: LeaseOut, 404: ErrorOut, 409: ErrorOut},
    summary="Take a bench for a while",
    openapi_extra=answers(
        201, links={name: {"lease_id": "$response.body#/id"} for name in ("lease_longer", "lease_end")}
    ),
)
def lease_create(request: HttpRequest, body: LeaseIn) -> Status[dict[str, Any]]:
    """Only one's own runs start there until it ends; one under way goes on. A lease that is not used ends early."""
    caller = caller_of(request)
    require(caller, Right.LEASE)
    bench = Bench.objects.filter(pk=body.bench).first() if "\x00" not in body.bench else None
    if bench is None:
        raise ApiError(404, "not_found", f"There is no bench {body.bench!r}.")
    lease = lease_take(bench=bench, by=caller, minutes=body.minutes, purpose=body.purpose.replace("\x00", ""))
    return Status(201, _lease(lease))


def _find(lease_id: int) -> Lease:
    lease = lease_get(lease_id=lease_id)
    if lease is None:
        raise ApiError(404, "not_found", f"There is no lease {lease_id}.")
    return lease


@router.post(
    "/leases/{lease_id}/extend",
    response={200: LeaseOut, 404: ErrorOut, 409: ErrorOut},
    summary="Hold a bench for longer",
)
def lease_longer(request: HttpRequest, lease_id: Number, body: LeaseLonger) -> dict[str, Any]:
    """All of it stays within the holder's quota."""
    caller = caller_of(request)
    require(caller, Right.LEASE)
    return _lease(lease_extend(lease=_find(lease_id), by=caller, minutes=body.minutes))


@router.delete("/leases/{lease_id}", response={204: None, 404: ErrorOut}, summary="Give a bench back")
def lease_end(request: HttpRequest, lease_id: Number) -> Status[None]:
    """Harmless if it has ended already. A run under way goes on."""
    caller = caller_of(request)
    require(caller, Right.LEASE)
    lease_release(lease=_find(lease_id), by=caller)
    return Status(204, None)
