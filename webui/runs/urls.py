"""Addresses of runs."""

from __future__ import annotations

from django.urls import path

from webui.runs import list_views, views

urlpatterns = [
    path("runs", list_views.run_list, name="runs"),
    path("runs/table", list_views.run_table, name="runs-table"),
    path("runs/chosen", list_views.run_chosen, name="runs-chosen"),
    path("runs/<str:run_id>", views.run, name="run"),
    path("runs/<str:run_id>/cancel", views.run_cancel, name="run-cancel"),
    path("runs/<str:run_id>/trials", views.run_trials, name="run-trials"),
    path("runs/<str:run_id>/evidence", views.run_evidence, name="run-evidence"),
    path("runs/<str:run_id>/log", views.run_log, name="run-log"),
    path("runs/<str:run_id>/queue", views.run_queue, name="run-queue"),
    path("runs/<str:run_id>/archive", views.run_archive, name="run-archive"),
    path("runs/<str:run_id>/files", views.run_files, name="run-files"),
    path("runs/<str:run_id>/files/<path:name>", views.run_file, name="run-file"),
    path("runs/<str:run_id>/export/<str:form>", views.run_export, name="run-export"),
]
