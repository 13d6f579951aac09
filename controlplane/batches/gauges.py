"""Open batches, and those that did not end in their window, as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Q
from prometheus_client.core import Metric

from controlplane.batches.models import OPEN, Batch, Status
from controlplane.core.gauges import gauge

# How long one that was given up counts as news.
_LATELY = timedelta(hours=1)


def families(now: datetime) -> Iterator[Metric]:
    is_open = Batch.objects.filter(status__in=OPEN)
    running = gauge("batches_open", "Batches that have not ended.", "tenant")
    for tenant, count in is_open.values_list("tenant").annotate(Count("pk")).order_by("tenant"):
        running.add_metric((tenant,), count)
    late = Q(status__in=OPEN, expires_at__lt=now) | Q(status=Status.EXPIRED, expired_at__gt=now - _LATELY)
    past = gauge(
        "batches_past_window",
        "Batches whose window is over before they were: still open, or given up within the last hour.",
        "tenant",
    )
    for tenant, count in Batch.objects.filter(late).values_list("tenant").annotate(Count("pk")).order_by("tenant"):
        past.add_metric((tenant,), count)
    yield from (running, past)
