"""Addresses of accounts."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import path

from webui.accounts import views

urlpatterns = [
    path("login", views.Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("account/password", views.password, name="password"),
    path("account/tokens", views.tokens, name="tokens"),
    path("account/tokens/<int:token_id>/revoke", views.token_revoke, name="token-revoke"),
]
