"""`/api/v1/experiments`: what is shipped and can be started by name."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from webui.api.schemas import ErrorOut
from webui.catalogue.selectors import experiment_list

router = Router(tags=["experiments"])


class ExperimentOut(Schema):
    """A shipped experiment."""

    name: str
    question: str
    about: str
    systems: list[str]
    file: str


@router.get("/experiments", response={200: list[ExperimentOut], 401: ErrorOut}, summary="The shipped experiments")
def experiments(request: HttpRequest) -> list[dict[str, Any]]:
    """Each asks one question; start one with `POST /runs` and its name."""
    return [
        {
            "name": item.name,
            "question": item.question,
            "about": item.about,
            "systems": list(item.systems),
            "file": item.file,
        }
        for item in experiment_list()
        if not item.fault
    ]
