"""Addresses of benches, leases, and of a run's time."""

from __future__ import annotations

from django.urls import path

from webui.benches import views

urlpatterns = [
    path("benches", views.benches, name="benches"),
    path("benches/<slug:name>", views.bench, name="bench"),
    path("benches/<slug:name>/lease", views.lease_take, name="lease-take"),
    path("benches/<slug:name>/lease/extend", views.lease_extend, name="lease-extend"),
    path("benches/<slug:name>/lease/release", views.lease_release, name="lease-release"),
    path("benches/<slug:name>/change", views.bench_change, name="bench-change"),
    path("runs/<str:run_id>/extend", views.run_extend, name="run-extend"),
]
