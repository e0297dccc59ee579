"""Adds the sender of webhooks to Celery's workers."""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

from webui.celery import app
from webui.hooks.sender import HookSender

app.steps["worker"].add(HookSender)
