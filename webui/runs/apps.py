"""The app's entry in INSTALLED_APPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.conf import settings

from webui.accounts.signals import account_closed
from webui.settings.secret_key import is_ours

if TYPE_CHECKING:
    from webui.accounts.models import User


class RunsConfig(AppConfig):
    """Runs."""

    name = "webui.runs"
    label = "runs"

    def ready(self) -> None:
        """Listens to closed accounts. Makes the embedded broker's folders where the state folder is ours; kombu
        expects to find them.
        """
        account_closed.connect(_cancel_what_waits)
        if settings.CELERY_BROKER_URL.startswith("filesystem:") and is_ours(settings.DATABASE_FOLDER):
            for name in ("messages", "control"):
                (settings.QUEUE_FOLDER / name).mkdir(parents=True, exist_ok=True)


def _cancel_what_waits(*, user: User, **_: object) -> None:
    from webui.runs.services import runs_cancel_of  # it needs the models, which are not there yet when this is read

    runs_cancel_of(owner=user)
