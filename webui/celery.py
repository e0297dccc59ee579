"""The Celery application. Workers are started as `celery -A webui.celery worker --pool threads` (testbed.command.up).

Threads, because a task only watches processes that do the work; nothing here uses a CPU for long.
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES["filesystem"] = "webui.messages:Transport"  # kombu's own, with whole messages
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webui.settings")

app = Celery("webui")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["webui.runs", "webui.hooks"])
