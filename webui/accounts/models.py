"""Tables of accounts. No rules here: services write, selectors read."""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from webui.accounts.agents import agent_words
from webui.accounts.roles import Role, Scope
from webui.accounts.sessions import SessionStore


class User(AbstractUser):
    """A person or a CI job. `role` says what they may do; Django's own staff and superuser flags mean nothing here."""

    role = models.CharField(
        max_length=12, choices=[(item.value, item.value) for item in Role], default=Role.RUNNER.value
    )
    one_time_password = models.BooleanField(default=False)
    """The password was made by us and printed once; nothing but choosing a new one is allowed until it is replaced."""


def every_scope() -> list[str]:
    """What tokens had before there were scopes."""
    return [scope.value for scope in Scope]


class Quota(models.Model):
    """What one person may have of the console, where it differs from the settings' QUOTA. Empty: as there."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="quota")
    queued_runs = models.PositiveIntegerField(null=True, blank=True)
    """Runs waiting at once; one more is refused with 429."""
    active_runs = models.PositiveIntegerField(null=True, blank=True)
    """Runs under way at once; further ones wait, and others go first."""
    bench_minutes_per_day = models.PositiveIntegerField(null=True, blank=True)
    """Minutes of emulation in the last 24 h."""
    run_minutes = models.PositiveIntegerField(null=True, blank=True)
    """Longest wall time of one run, extensions included."""
    lease_minutes = models.PositiveIntegerField(null=True, blank=True)
    """Longest lease of a bench, extensions included."""

    def __str__(self) -> str:
        return f"quota of {self.user}"


class ApiToken(models.Model):
    """A bearer token for the REST API. The secret itself is shown once and never stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=60)
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the secret, in hex. A secret of 256 random bits needs no slow hash."""
    start = models.CharField(max_length=12)
    """The first characters, so that its owner can tell tokens apart."""
    scopes = models.JSONField(default=every_scope)
    """Values of roles.Scope."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.start}… ({self.name})"


class Session(AbstractBaseSession):
    """One browser that is signed in, or a visitor's before that."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="sessions")
    address = models.GenericIPAddressField(null=True)
    """Where it was opened from."""
    agent = models.CharField(max_length=200, blank=True)
    """What the browser called itself then."""
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    """Last use, to the minute."""

    class Meta(AbstractBaseSession.Meta):
        ordering = ["-seen_at"]

    @property
    def number(self) -> str:
        """What pages name it by: its key would let whoever reads the page be its owner."""
        return hashlib.sha256(f"session {self.session_key}".encode()).hexdigest()[:16]

    @property
    def browser(self) -> str:
        """In words."""
        return agent_words(self.agent)

    @classmethod
    def get_session_store_class(cls) -> type[SessionStore]:
        """The engine."""
        return SessionStore


class LoginFailure(models.Model):
    """One refused log-in, kept as long as the throttle looks back."""

    name = models.CharField(max_length=150)
    """What was typed as user name, lower case; it need not exist."""
    address = models.GenericIPAddressField(null=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["name", "address", "at"])]

    def __str__(self) -> str:
        return f"{self.name} from {self.address} at {self.at:%H:%M:%S}"


class Take(models.Model):
    """How often somebody took something that is limited, within one minute (accounts.limits)."""

    limit = models.CharField(max_length=20)
    who = models.CharField(max_length=60)
    """`user 7`, or an address."""
    minute = models.BigIntegerField()
    """Minutes since 1970."""
    count = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["limit", "who", "minute"], name="accounts_one_count_a_minute")]

    def __str__(self) -> str:
        return f"{self.limit} by {self.who}: {self.count}"
