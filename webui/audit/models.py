"""The table of the audit log. Rows are only ever added; they outlive the people and things they speak of."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Entry(models.Model):
    """One deed."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    who = models.CharField(max_length=180)
    """The actor's name as it was, with the token's start where one was used; `console` for the console itself."""
    address = models.GenericIPAddressField(null=True)
    deed = models.CharField(max_length=40)
    """A value of audit.deeds.Deed: `run.start`, `token.create`, …"""
    thing = models.CharField(max_length=180, blank=True)
    """What it was done to: a run's id, a user's name, a bench."""
    detail = models.JSONField(default=dict)
    """What else is worth keeping; never a secret."""

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["-at", "-id"]),
            models.Index(fields=["thing", "-at"]),
            models.Index(fields=["deed", "-at"]),
        ]

    def __str__(self) -> str:
        return f"{self.who} {self.deed} {self.thing}"
