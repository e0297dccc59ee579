"""Addresses of accounts."""

from __future__ import annotations

from django.urls import path

from webui.accounts import people, views

urlpatterns = [
    path("login", views.Login.as_view(), name="login"),
    path("logout", views.Logout.as_view(), name="logout"),
    path("account", views.account, name="account"),
    path("account/password", views.password, name="password"),
    path("account/sessions/<slug:number>/end", views.session_end, name="session-end"),
    path("account/tokens", views.tokens, name="tokens"),
    path("account/tokens/<int:token_id>/revoke", views.token_revoke, name="token-revoke"),
    path("people", people.people, name="people"),
    path("people/<str:name>", people.person, name="person"),
    path("people/<str:name>/quota", people.person_quota, name="person-quota"),
    path("people/<str:name>/password", people.person_password, name="person-password"),
    path("people/<str:name>/sessions", people.person_sessions, name="person-sessions"),
    path("people/<str:name>/tokens/<int:token_id>", people.person_token, name="person-token"),
    path("people/<str:name>/close", people.person_close, name="person-close"),
    path("groups", people.group_list, name="groups"),
    path("groups/<int:group_id>", people.group, name="group"),
    path("groups/<int:group_id>/rename", people.group_rename, name="group-rename"),
    path("groups/<int:group_id>/remove", people.group_remove, name="group-remove"),
    path("groups/<int:group_id>/members/<str:name>/drop", people.group_drop, name="group-drop"),
]
