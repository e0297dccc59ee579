"""Addresses of the catalogue."""

from __future__ import annotations

from django.urls import path, register_converter

from webui.catalogue import launch_views, views


class ExperimentName:
    """An experiment's name, slashes included."""

    regex = "[a-z0-9][a-z0-9_/-]*"

    def to_python(self, value: str) -> str:
        """As it stands."""
        return value

    def to_url(self, value: str) -> str:
        """As it stands."""
        return value


register_converter(ExperimentName, "experiment")

urlpatterns = [
    path("experiments", views.experiments, name="experiments"),
    path("experiments/doctor", views.doctor, name="doctor"),
    path("experiments/plan", launch_views.plan, name="plan"),
    path("experiments/new", launch_views.own, name="own"),
    path("experiments/<experiment:name>", launch_views.experiment, name="experiment"),
]
