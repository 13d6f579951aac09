"""A detector's questions, as they are put to the metrics, and the answers as it reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from controlplane.diagnosis.detector import WINDOW, Detector, Reading
from controlplane.telemetry.results import Sample
from wire.write_body import METRIC_NAME


def expressions(detector: Detector, window_seconds: int) -> dict[str, str]:
    """Name → PromQL, its `$window` filled in."""
    return {name: in_window(promql, window_seconds) for name, promql in detector.queries.items()}


def in_window(promql: str, window_seconds: int) -> str:
    return promql.replace(WINDOW, f"{window_seconds}s")


def readings_of(samples: Iterable[Sample]) -> tuple[Reading, ...]:
    """Without NaN and infinities, and without the names of series."""
    return tuple(Reading(_unnamed(sample.labels), sample.value) for sample in samples if math.isfinite(sample.value))


def _unnamed(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != METRIC_NAME}
