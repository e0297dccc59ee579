"""Addresses of comparisons."""

from __future__ import annotations

from django.urls import path

from webui.compare import sweep_views, views

urlpatterns = [
    path("compare", views.compare, name="compare"),
    path("compare/lanes", views.compare_lanes, name="compare-lanes"),
    path("compare/table.csv", views.compare_csv, name="compare-csv"),
    path("compare/table.json", views.compare_json, name="compare-json"),
    path("compare/sweep", sweep_views.sweep, name="compare-sweep"),
    path("compare/sweep.csv", sweep_views.sweep_csv, name="compare-sweep-csv"),
    path("compare/sweep.json", sweep_views.sweep_json, name="compare-sweep-json"),
]
