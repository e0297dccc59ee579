"""Addresses of websockets."""

# mypy: disable-error-code="no-untyped-call"
# channels has no types of its own.
from __future__ import annotations

from django.urls import path

from webui.runs.stream import RunStream

websocket_urlpatterns = [path("ws/runs/<str:run_id>", RunStream.as_asgi())]
