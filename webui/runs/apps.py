"""The app's entry in INSTALLED_APPS."""

from __future__ import annotations

import os

from django.apps import AppConfig
from django.conf import settings


class RunsConfig(AppConfig):
    """Runs."""

    name = "webui.runs"
    label = "runs"

    def ready(self) -> None:
        """Makes the embedded broker's folders where the state folder is ours; kombu expects to find them."""
        if settings.CELERY_BROKER_URL.startswith("filesystem:") and os.access(settings.DATABASE_FOLDER, os.W_OK):
            for name in ("messages", "control"):
                (settings.QUEUE_FOLDER / name).mkdir(parents=True, exist_ok=True)
