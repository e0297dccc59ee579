"""The app's entry in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings

from webui.settings.secret_key import is_ours


class RunsConfig(AppConfig):
    """Runs."""

    name = "webui.runs"
    label = "runs"

    def ready(self) -> None:
        """Makes the embedded broker's folders where the state folder is ours; kombu expects to find them."""
        if settings.CELERY_BROKER_URL.startswith("filesystem:") and is_ours(settings.DATABASE_FOLDER):
            for name in ("messages", "control"):
                (settings.QUEUE_FOLDER / name).mkdir(parents=True, exist_ok=True)
