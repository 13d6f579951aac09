"""How the looks at engines go, as series of the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.engine_watch import LookRow

_LABELS = ["pool", "engine"]


def look_families(rows: Iterable[LookRow]) -> Iterator[Metric]:
    """What is not known has no sample."""
    age = GaugeMetricFamily(
        "headworks_gateway_engine_look_age_seconds", "Since the engine's metrics page was last read.", labels=_LABELS
    )
    failures = CounterMetricFamily(
        "headworks_gateway_engine_look_failures", "Looks at the engine's metrics page that failed.", labels=_LABELS
    )
    others = GaugeMetricFamily(
        "headworks_gateway_kv_others_tokens",
        "KV cache tokens that others than this gateway are taken to hold.",
        labels=_LABELS,
    )
    for row in rows:
        labels = [row.pool, row.engine]
        failures.add_metric(labels, row.failures)
        if row.age_seconds is not None:
            age.add_metric(labels, row.age_seconds)
        if row.others_tokens is not None:
            others.add_metric(labels, row.others_tokens)
    yield from (age, failures, others)
