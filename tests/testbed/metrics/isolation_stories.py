"""A port told event by event, for tests: its forecast, collectives that end at it, KV that comes in."""

from __future__ import annotations

from testbed.events.kv_events import CollectiveFinished, PortForecast, TransferFinished
from testbed.events.log import Record
from tests.testbed.metrics.stories import MS, Story

RATE, FRAME = 100_000_000, 4154
PAYLOAD = 4096


def forecast(*, saturating: bool = False, kv: str = "own") -> PortForecast:
    return PortForecast(kv, RATE, FRAME, 128, 16 * MS, 20 * MS, 1_000, saturating)


def pushed(packets: int, began_ms: float) -> TransferFinished:
    return TransferFinished(
        "isolation", "de3-5-hbm", 0, "de0.cnic0", "pe1.cnic0", packets * PAYLOAD, 1, round(began_ms * MS), ()
    )


def collective(packets: int, lasting_ms: float, sequence: int = 1) -> CollectiveFinished:
    return CollectiveFinished("dispatch", 0, sequence, packets * PAYLOAD, packets, round(lasting_ms * MS))


def isolation_run() -> list[Record]:
    """Bursts of 100 packets into a port of 3,009 packets a second, and KV for a second in between."""
    story = Story().at(0, "pe1", forecast())
    for number in range(100):
        story.at(10 * number + 9, "pe0", collective(10, 4.0, number))
        story.at(10 * number + 9, "pe1", collective(10, 5.0 + number / 50, number))
    for number in range(10):
        story.at(100 * number + 100, "de0", pushed(180, 100 * number))
    return story.records()


def saturated_run() -> list[Record]:
    """Collectives one after another for three seconds; a packet of KV each 300 ms, and many once they have ended."""
    story = Story().at(0, "pe1", forecast(saturating=True))
    for number in range(30):
        story.at(100 * number + 100, "pe1", collective(0, 100, number))
    for number in range(9):
        story.at(300 * number + 350, "de0", pushed(1, 300 * number))
    for number in range(50):
        story.at(3001 + number, "de0", pushed(1, 3000))
    return story.records()
