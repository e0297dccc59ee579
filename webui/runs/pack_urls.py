"""Addresses from which the run page's script fetches what it does not stream."""

from __future__ import annotations

from django.urls import path

from webui.runs import pack_views

urlpatterns = [
    path("runs/<str:run_id>/pack", pack_views.run_pack, name="run-pack"),
    path("runs/<str:run_id>/story", pack_views.run_story, name="run-story"),
]
