"""What a request asks to run: the text of an experiment, by itself or by a shipped name, and the changes to it."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from webui.api.errors import ApiError
from webui.api.schemas import ExperimentAsked
from webui.catalogue.selectors import experiment_get


class Asked(NamedTuple):
    """An experiment to be read."""

    text: str
    name: str
    """Of the shipped experiment; empty for a text of the caller's own."""
    overrides: list[str]


def asked(body: ExperimentAsked) -> Asked:
    """The experiment that `body` asks for. Raises ApiError."""
    if (body.spec is None) == (body.experiment is None):
        raise ApiError(422, "bad_request", "Send either `spec` or `experiment`, and not both.", path="spec")
    overrides = override_texts(body.overrides)
    if body.spec is not None:
        return Asked(body.spec, "", overrides)
    experiment = experiment_get(name=body.experiment or "")
    if experiment is None:
        raise ApiError(422, "unknown_experiment", f"There is no experiment {body.experiment!r}.", path="experiment")
    return Asked(experiment.text, experiment.name, overrides)


def override_texts(overrides: dict[str, Any]) -> list[str]:
    """`key=value` as `--set` takes them; a value is written as TOML."""
    texts = []
    for key, value in overrides.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ApiError(422, "bad_request", "An override is a finite number.", path=f"overrides.{key}")
        texts.append(f"{key}={json.dumps(value, ensure_ascii=False)}")
    return texts
