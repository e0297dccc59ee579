"""Tables of benches. No rules here: services write, selectors read."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models


class Health(models.TextChoices):
    """Whether a bench takes runs."""

    WELL = "well", "well"
    ILL = "ill", "out of service"
    """Its own check found something: `reason` says what. Runs wait or go elsewhere."""
    AWAY = "away", "away"
    """Nothing has been heard of its worker for a while."""


class Bench(models.Model):
    """A machine with a worker. It reports itself; an admin can only close it and give it tags."""

    name = models.SlugField(max_length=40, primary_key=True)
    tags = models.JSONField(default=list)
    """Words that runs may ask for, given by whoever starts the worker or by an admin: `lab-2`, `connectx`."""
    abilities = models.JSONField(default=dict)
    """By ability (webui.benches.needs): true, or the sentence that says why not. From its own probes."""
    facts = models.JSONField(default=dict)
    """Cores, memory, kernel, revision of the source, `slots` (simulations at once), `emulates_elsewhere`."""
    findings = models.JSONField(default=list)
    """What its doctor found, the worst first: objects with tone, title, detail, command."""
    is_open = models.BooleanField(default=True)
    """An admin may close a bench; its runs in flight end, new ones go elsewhere."""
    health = models.CharField(max_length=6, choices=Health.choices, default=Health.AWAY)
    reason = models.CharField(max_length=300, blank=True)
    """Why it is not well, in one sentence."""
    since = models.DateTimeField(auto_now_add=True)
    """When `health` last changed."""
    seen_at = models.DateTimeField(null=True)
    """The worker's last heartbeat."""

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def emulates_elsewhere(self) -> bool:
        """A command or another console emulates on its machine."""
        return self.facts.get("emulates_elsewhere") is True


class Lease(models.Model):
    """A bench for one person for a while: only their runs go there. Ends by time, by release, or with the bench."""

    bench = models.ForeignKey(Bench, on_delete=models.CASCADE, related_name="leases")
    holder = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="leases")
    purpose = models.CharField(max_length=120, blank=True)
    begins_at = models.DateTimeField(auto_now_add=True)
    ends_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-begins_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["bench"], condition=models.Q(released_at=None), name="benches_one_open_lease"
            )
        ]

    def __str__(self) -> str:
        return f"{self.bench_id} for {self.holder}"


class Console(models.Model):
    """The one row of this console: who it is, and what workers lock while they decide which run starts where."""

    ONLY = 1
    """Its primary key."""

    key = models.UUIDField(default=uuid.uuid4)
    """Stands in a file of the runs folder, so that a worker whose folder is another one notices."""

    def __str__(self) -> str:
        return str(self.key)


class Turn(models.Model):
    """A run's time on a bench: who had it, and how long. Made by the claim; what fair turns and quotas count."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="turn")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="turns")
    bench = models.ForeignKey(Bench, null=True, on_delete=models.SET_NULL, related_name="turns")
    emulation = models.BooleanField()
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-begins_at"]
        indexes = [models.Index(fields=["owner", "-begins_at"]), models.Index(fields=["bench", "-begins_at"])]

    def __str__(self) -> str:
        return f"{self.run_id} on {self.bench_id}"
