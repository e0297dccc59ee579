"""Tables of runs. No rules here: services write, selectors read. Events never go into rows."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Value
from django.db.models.functions import Cast, Concat

from webui.runs.indexes import ListIndex
from webui.runs.states import Outcome, State


class Backend(models.TextChoices):
    """What carries a run out, as `looplane run --on` says it."""

    SIM = "sim", "simulated"
    MININET = "mininet", "Mininet"


class Origin(models.TextChoices):
    """Who started it."""

    CONSOLE = "console", "console"
    FOLDER = "folder", "command line"
    """Found as a run folder; nobody here holds a lease on it."""


class Visibility(models.TextChoices):
    """Who may read a run beside its owner, the instructors of the owner's groups, and admins."""

    PRIVATE = "private", "only me"
    GROUPS = "groups", "groups I choose"
    EVERYONE = "everyone", "everyone who is signed in"


class Run(models.Model):
    """One run, or one that is to be. Its primary key is the run id, which is also the folder's name."""

    id = models.CharField(max_length=40, primary_key=True)
    experiment = models.CharField(max_length=120, blank=True)
    """Name of the shipped experiment, empty for a spec of the user's own."""
    question = models.CharField(max_length=300)
    backend = models.CharField(max_length=10, choices=Backend.choices)
    systems = models.JSONField(default=list)
    """Names of the systems that the spec compares."""
    seed = models.BigIntegerField(null=True)
    spec = models.TextField()
    """The TOML text as it was sent, before overrides."""
    overrides = models.JSONField(default=list)
    """`key=value` texts, as `looplane run --set` takes them."""
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.CONSOLE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="runs")
    visibility = models.CharField(max_length=10, choices=Visibility.choices, default=Visibility.PRIVATE)
    groups = models.ManyToManyField("auth.Group", blank=True, related_name="runs")
    """Who else reads it where visibility is GROUPS."""
    tags = models.JSONField(default=list)
    """Lower-case words of the owner's, at most 10; searched as text."""
    clone_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="clones")
    revision = models.CharField(max_length=40, blank=True)
    """Git revision of the console that took the run; empty where the source is no checkout."""

    needs = models.JSONField(default=list)
    """Tags and abilities that its bench must have (webui.benches.needs)."""
    bench = models.ForeignKey("benches.Bench", null=True, on_delete=models.SET_NULL, related_name="runs")
    """Where it is carried out; set by the claim."""
    time_limit_s = models.PositiveIntegerField(null=True)
    """Wall time from the claim until it is asked to end; None takes the owner's quota."""
    ends_by = models.DateTimeField(null=True)
    """The moment that follows; later if the owner extends it."""
    expected_s = models.FloatField(null=True)
    """Wall time that it is thought to take: what the last run of the same experiment and backend took."""

    state = models.CharField(max_length=12, choices=[(item.value, item.value) for item in State], default=State.QUEUED)
    outcome = models.CharField(max_length=12, blank=True, choices=[(item.value, item.value) for item in Outcome])
    detail = models.TextField(blank=True)
    """Why it ended as it did, or what it waits for: one sentence for people."""
    fidelity = models.CharField(max_length=12, blank=True)
    """faithful, degraded or invalid; empty until judged, and for a simulated run."""
    summary = models.JSONField(default=dict)
    """What `looplane run --json` prints, once the run is finished; a copy of summary.json, to be made again from it."""

    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    lease_owner = models.CharField(max_length=40, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    """How often a worker has claimed it; more than 1 means that one died."""

    idempotency_key = models.CharField(max_length=100, null=True, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)
    """SHA-256 of the request that the key came with; the same key with another request is refused."""

    search = models.GeneratedField(
        expression=Concat(
            *("id", Value(" "), "question", Value(" "), "experiment", Value(" "), Cast("tags", models.TextField())),
            output_field=models.TextField(),
        ),
        output_field=models.TextField(),
        db_persist=True,
    )
    """What the list searches; kept by the database, so no writer can forget it."""

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["state", "created_at"]),
            models.Index(fields=["experiment", "-created_at"]),
            models.Index(fields=["finished_at", "id"]),
            ListIndex(
                name="runs_list_covers",
                fields=[
                    *("created_at", "id", "state", "outcome", "fidelity", "backend", "experiment", "bench", "owner"),
                    *("visibility", "finished_at", "tags", "search"),
                ],
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="runs_idempotency_key_once"),
            models.CheckConstraint(
                condition=models.Q(state=State.FINISHED.value) ^ models.Q(outcome=""), name="runs_outcome_when_finished"
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def label(self) -> str:
        """The six hex digits that people call it by."""
        return self.id.rsplit("-", 1)[-1]

    @property
    def is_finished(self) -> bool:
        """Nothing will change any more."""
        return self.state == State.FINISHED

    @property
    def is_cancelling(self) -> bool:
        """Asked to stop, and not there yet."""
        return self.cancel_requested_at is not None and not self.is_finished
