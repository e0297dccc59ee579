"""Tables of metering: what has no row of its own to be counted from, such as requests."""

from __future__ import annotations

from django.db import models


class Tally(models.Model):
    """One number of one series, added to by every process that counts."""

    name = models.CharField(max_length=40)
    """A row of metering.series."""
    labels = models.JSONField(default=list)
    """Values of the series' labels, in their order; for a bucket of a histogram its upper bound last."""
    key = models.CharField(max_length=250)
    """The labels as one text, for the constraint."""
    value = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "key"], name="metering_series_once")]

    def __str__(self) -> str:
        return f"{self.name} {self.key}"


class Watch(models.Model):
    """Live pages that one web process serves now. A process that is gone stops renewing its row."""

    process = models.CharField(max_length=60, primary_key=True)
    viewers = models.PositiveIntegerField(default=0)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.viewers} at {self.process}"
