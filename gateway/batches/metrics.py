"""How lines of batches stand, as series of the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric


class RoomMoment(NamedTuple):
    """What a scrape sees of one pool: lines at its engines, lines that wait, and the limit of all in flight."""

    pool: str
    running: int
    waiting: int
    limit: int


def line_families(rooms: Iterable[RoomMoment]) -> Iterator[Metric]:
    """Of the pools that lines have come to."""

    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"headworks_gateway_batch_{name}", text, labels=["pool"])

    running = gauge("lines_running", "Lines of batches at the pool's engines.")
    waiting = gauge("lines_waiting", "Lines of batches that wait for what interactive requests leave.")
    limit = gauge("in_flight_limit", "Requests in flight, interactive ones too, under which a line may start.")
    for room in rooms:
        running.add_metric([room.pool], room.running)
        waiting.add_metric([room.pool], room.waiting)
        limit.add_metric([room.pool], room.limit)
    yield from (running, waiting, limit)
