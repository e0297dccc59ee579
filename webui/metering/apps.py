"""Registers the app with Django."""

from __future__ import annotations

from django.apps import AppConfig


class MeteringConfig(AppConfig):
    """See the package."""

    name = "webui.metering"
