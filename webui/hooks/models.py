"""Tables of webhooks. No rules here: services write, selectors read."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Webhook(models.Model):
    """An address that is told about its owner's runs."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    secret = models.CharField(max_length=80)
    """Key of the HMAC. Kept as it is, since it must be used; shown to its owner once."""
    events = models.JSONField(default=list)
    """Values of hooks.events.HookEvent."""
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.url


class Delivery(models.Model):
    """One message to one webhook, until it is taken or given up."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    run = models.ForeignKey("runs.Run", null=True, on_delete=models.SET_NULL, related_name="+")
    event = models.CharField(max_length=30)
    body = models.TextField()
    """The JSON text that is signed and sent, the same on every attempt."""
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True)
    """Next attempt; None once delivered or given up."""
    delivered_at = models.DateTimeField(null=True)
    status = models.PositiveIntegerField(null=True)
    """HTTP status of the last answer."""
    fault = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["due_at"])]
        constraints = [models.UniqueConstraint(fields=["webhook", "run", "event"], name="hooks_told_once")]

    def __str__(self) -> str:
        return f"{self.event} to {self.webhook_id}"
