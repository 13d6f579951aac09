"""Limits that a person gives a tenant for a time. They are state, not configuration: a rollback leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.expiry import end_all
from controlplane.tenants import models as rows
from controlplane.tenants.services.tenants import TEMPORARY_LIMITS, TENANTS, temporary_of
from wire.problems import Problem

EXPIRES_MAX_SECONDS = 31 * 86_400


class TemporaryLimitsFields(f.Fields):
    """What holds before the tenant's own limits and its schedule; null: as it is. The reason is that of the write."""

    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    daily_token_budget: f.Count | None = None
    expires_in_seconds: Annotated[int, Field(ge=1, le=EXPIRES_MAX_SECONDS)]


def give(unit: UnitOfWork, tenant: str, fields: Mapping[str, Any]) -> rows.Tenant:
    """Give a tenant limits for a time, in the place of those that it was given before. The actor owns them.

    Raises Refused with every problem, or NotFound.
    """
    asked = f.read(TemporaryLimitsFields, fields)
    limits = asked.model_dump(include=set(TEMPORARY_LIMITS))
    if all(limit is None for limit in limits.values()):
        f.refuse_if([Problem("/", "one_of", f"give at least one of {', '.join(TEMPORARY_LIMITS)}")])
    row = TENANTS.lock(tenant)
    before = TENANTS.describe(row)
    ends = {"owner": unit.actor.name, "reason": unit.reason, "expires_at": _end(asked.expires_in_seconds)}
    row.temporary, _ = rows.TemporaryLimits.objects.update_or_create(tenant=row, defaults={**limits, **ends})
    TENANTS.note(unit, row, before)
    return row


def take_back(unit: UnitOfWork, tenant: str) -> rows.Tenant:
    """End a tenant's temporary limits. Raises NotFound where it has none."""
    row = TENANTS.lock(tenant)
    temporary = temporary_of(row)
    if temporary is None:
        raise NotFound(f"tenant {tenant!r} has no temporary limits")
    before = TENANTS.describe(row)
    temporary.delete()
    row = TENANTS.get(tenant)
    TENANTS.note(unit, row, before)
    return row


def forget_expired(now: datetime) -> int:
    """Remove what has expired, of which gateways take no more notice; answers how many."""
    expired = rows.TemporaryLimits.objects.filter(expires_at__lte=now).select_related("tenant")
    return end_all(expired, "the temporary limits expired", lambda unit, row: take_back(unit, row.tenant.name))


def _end(seconds: int) -> datetime:
    return f.from_epoch_ms(f.epoch_ms(timezone.now() + timedelta(seconds=seconds)))
