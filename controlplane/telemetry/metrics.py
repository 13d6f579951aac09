"""What the receiver of this process measures of itself; the page /metrics shows it."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

SAMPLES = Counter(
    "headworks_telemetry_samples", "Samples of remote writes that were taken, those sent again included.", registry=None
)
REFUSED_BODIES = Counter(
    "headworks_telemetry_refused_bodies",
    "Remote writes that were refused, by the first reason that their sender was given.",
    ("reason",),
    registry=None,
)
# Of metric writers alone: nodes and gateways are many, and their samples alike.
WRITER_SAMPLES = Counter(
    "headworks_telemetry_writer_samples",
    "Samples of remote writes of each metric writer that were taken.",
    ("writer",),
    registry=None,
)
WRITER_REFUSED_BODIES = Counter(
    "headworks_telemetry_writer_refused_bodies",
    "Remote writes of a metric writer that were refused, by the first reason.",
    ("writer", "reason"),
    registry=None,
)
LOST_BODIES = Counter(
    "headworks_telemetry_lost_bodies",
    "Remote writes that were taken, and then refused for good by the external server.",
    registry=None,
)
SPOOL_BYTES = Gauge(
    "headworks_telemetry_spool_bytes",
    "Size of what waits for the external metrics server, as this process saw it last.",
    registry=None,
)
RECEIVER = (SAMPLES, REFUSED_BODIES, WRITER_SAMPLES, WRITER_REFUSED_BODIES, LOST_BODIES, SPOOL_BYTES)
