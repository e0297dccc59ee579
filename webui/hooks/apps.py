"""Registers the app with Django."""

from __future__ import annotations

from django.apps import AppConfig


class HooksConfig(AppConfig):
    """See the package."""

    name = "webui.hooks"
