"""Addresses of runs."""

from __future__ import annotations

from django.urls import path

from webui.runs import views

urlpatterns = [
    path("runs", views.run_list, name="runs"),
    path("runs/table", views.run_table, name="runs-table"),
    path("runs/<str:run_id>", views.run, name="run"),
    path("runs/<str:run_id>/cancel", views.run_cancel, name="run-cancel"),
    path("runs/<str:run_id>/surroundings", views.run_surroundings, name="run-surroundings"),
    path("runs/<str:run_id>/files", views.run_files, name="run-files"),
    path("runs/<str:run_id>/files/<path:name>", views.run_file, name="run-file"),
    path("runs/<str:run_id>/export/<str:form>", views.run_export, name="run-export"),
]
