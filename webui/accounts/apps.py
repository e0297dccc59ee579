"""The app's entry in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users and tokens."""

    name = "webui.accounts"
    label = "accounts"
