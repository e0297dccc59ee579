"""Addresses of the audit log."""

from __future__ import annotations

from django.urls import path

from webui.audit import views

urlpatterns = [
    path("audit", views.audit_log, name="audit"),
    path("audit.csv", views.audit_csv, name="audit-csv"),
]
