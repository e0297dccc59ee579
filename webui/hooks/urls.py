"""Addresses of webhooks."""

from __future__ import annotations

from django.urls import path

from webui.hooks import views

urlpatterns = [
    path("account/webhooks", views.hooks, name="hooks"),
    path("account/webhooks/<int:hook_id>", views.hook, name="hook"),
    path("account/webhooks/<int:hook_id>/remove", views.hook_remove, name="hook-remove"),
    path("account/webhooks/<int:hook_id>/switch", views.hook_switch, name="hook-switch"),
    path("account/webhooks/<int:hook_id>/ping", views.hook_ping, name="hook-ping"),
    path("account/webhooks/<int:hook_id>/messages/<int:delivery_id>/again", views.hook_again, name="hook-again"),
]
