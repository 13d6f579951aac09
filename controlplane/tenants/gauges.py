"""When tenants' keys end, as a metric."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Min
from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.tenants.models import TenantKey

# A key that ends later is nobody's concern yet, and there are thousands.
_SOON = timedelta(days=30)
_TENANTS_MAX = 500


def families(now: datetime) -> Iterator[Metric]:
    """Of each tenant the first key that ends soon and that no other was put in the place of."""
    ends = gauge(
        "tenant_key_expiry_time_seconds",
        "Unix time at which the first of the tenant's keys ends that was not rotated.",
        "tenant",
    )
    soon = TenantKey.objects.filter(blocked=False, replaced_by=None, expires_at__gt=now, expires_at__lt=now + _SOON)
    first = soon.values_list("tenant__name").annotate(at=Min("expires_at")).order_by("at")
    for tenant, at in first[:_TENANTS_MAX]:
        ends.add_metric((tenant,), at.timestamp())
    yield ends
