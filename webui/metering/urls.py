"""Addresses of metering."""

from __future__ import annotations

from django.urls import path

from webui.metering import views

urlpatterns = [path("metrics", views.metrics, name="metrics")]
