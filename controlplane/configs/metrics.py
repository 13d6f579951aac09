"""What this process measures of itself, in a registry of its own. Page: /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

REGISTRY = CollectorRegistry()
PUBLISH_SECONDS = Histogram(
    "headworks_publish_seconds",
    "Time to make one revision from the writes that waited.",
    registry=REGISTRY,
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
WRITE_SECONDS = Histogram(
    "headworks_write_seconds",
    "Time for which a write let no other one in, its commit included.",
    registry=REGISTRY,
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
ACK_BATCH_SIZE = Histogram(
    "headworks_ack_batch_size",
    "Acknowledgements stored in one transaction.",
    registry=REGISTRY,
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
REQUESTS = Counter(
    "headworks_requests",
    "Requests answered, by route (its pattern, `unknown` where none matched) and status.",
    ("route", "method", "status"),
    registry=REGISTRY,
)
