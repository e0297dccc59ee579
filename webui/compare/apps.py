"""Registers the app with Django."""

from __future__ import annotations

from django.apps import AppConfig


class CompareConfig(AppConfig):
    """See the package."""

    name = "webui.compare"
