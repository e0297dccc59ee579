"""Which bench this process works for, and what its queue is called. Every worker belongs to one bench."""

from __future__ import annotations

from django.conf import settings
from django.utils.text import slugify


def bench_here() -> str:
    """The bench's name: LOOPLANE_BENCH, else this machine's."""
    return bench_name(settings.BENCH_NAME)


def bench_name(told: str) -> str:
    """Any text as a bench's name."""
    return slugify(told.replace(".", "-"))[:40] or "bench"


def bench_queue(bench: str) -> str:
    """Where messages to one bench's workers go."""
    return f"bench-{bench}"


def queues_here() -> list[str]:
    """What a worker of this bench listens to: its own queue, and where it simulates, the one that is for anybody."""
    own = bench_queue(bench_here())
    return [own, settings.CELERY_TASK_DEFAULT_QUEUE] if settings.BENCH_SIMULATES else [own]
