"""The web process of the API's tests."""

from __future__ import annotations

from tests.webui.api.conftest import served

__all__ = ["served"]
