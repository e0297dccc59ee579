"""Registers the app with Django."""

from __future__ import annotations

from django.apps import AppConfig


class BenchesConfig(AppConfig):
    """See the package."""

    name = "webui.benches"
