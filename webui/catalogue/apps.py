"""The app's entry in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class CatalogueConfig(AppConfig):
    """The catalogue has no tables: experiments are files."""

    name = "webui.catalogue"
    label = "catalogue"
