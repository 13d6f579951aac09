"""Tenant keys: made once, shown once, stored as a hash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.nouns import PAGE_ROWS, page_of, present
from controlplane.core.tokens import new_token, token_hash
from controlplane.tenants import models as rows
from wire.canonical import Document
from wire.problems import Problem

NOUN, SECTION, PREFIX_CHARACTERS = "key", "keys", 8
OVERLAP_MAX_SECONDS = 30 * 86_400


class KeyFields(f.Fields):
    """`expires_at` is ISO 8601 with its zone; null: never."""

    label: Annotated[f.Text, Field(max_length=100)] = ""
    blocked: bool = f.default_of(rows.TenantKey, "blocked")
    expires_at: f.Moment | None = None


class RotateFields(f.Fields):
    """How long the old key goes on working beside the new one."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_MAX_SECONDS)]


def describe(row: rows.TenantKey) -> Document:
    """The public form: never the key or its hash."""
    return {
        "id": row.pk,
        "tenant": row.tenant.name,
        "prefix": row.prefix,
        "label": row.label,
        "blocked": row.blocked,
        "expires_at": f.iso(row.expires_at),
        "replaced_by": row.replaced_by_id,
        "created_at": f.iso(row.created_at),
    }


def get(key_id: int) -> rows.TenantKey:
    return _found(key_id, rows.TenantKey.objects.select_related("tenant").filter(pk=key_id).first())


def page(tenant: rows.Tenant, limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.TenantKey], int | None]:
    """The tenant's keys, oldest first, after the one with the id `after`."""
    keys = tenant.keys.select_related("tenant").filter(pk__gt=after).order_by("pk")
    return page_of(keys, limit, lambda row: row.pk)


def create(unit: UnitOfWork, tenant: rows.Tenant, fields: Mapping[str, Any]) -> tuple[rows.TenantKey, str]:
    """A new key and its secret, which is nowhere stored. The caller holds the tenant's row (`TENANTS.lock`)."""
    values = _checked(fields).model_dump()
    secret = new_token("hw")
    row = rows.TenantKey(tenant=tenant, key_hash=token_hash(secret), prefix=secret[:PREFIX_CHARACTERS], **values)
    row.save(force_insert=True)
    _note(unit, row, None, describe(row))
    return row, secret


def update(unit: UnitOfWork, key_id: int, fields: Mapping[str, Any]) -> rows.TenantKey:
    """Change the given fields: block or unblock it, let it expire, label it."""
    row = _lock(key_id)
    before = describe(row)
    for field, value in _checked(fields).model_dump(exclude_unset=True).items():
        setattr(row, field, value)
    row.save()
    _note(unit, row, before, describe(row))
    return row


def rotate(unit: UnitOfWork, key_id: int, fields: Mapping[str, Any]) -> tuple[rows.TenantKey, str]:
    """A new key with the label of this one, which ends after the overlap, and the new one's secret.

    The new key has no end of its own. Raises Refused, NotFound, or Conflict for a key that nobody can use any more or
    that was rotated before.
    """
    overlap = timedelta(seconds=f.read(RotateFields, fields).overlap_seconds)
    row, now = _lock(key_id), timezone.now()
    _check_rotatable(row, now)
    before = describe(row)
    successor, secret = create(unit, row.tenant, {"label": row.label})
    end = f.from_epoch_ms(f.epoch_ms(now + overlap))
    row.expires_at = end if row.expires_at is None else min(end, row.expires_at)
    row.replaced_by = successor
    row.save()
    _note(unit, row, before, describe(row))
    return successor, secret


def _check_rotatable(row: rows.TenantKey, now: datetime) -> None:
    if row.replaced_by_id is not None:
        raise Conflict(f"key {row.pk} was rotated into key {row.replaced_by_id}; rotate that one", code="rotated")
    if row.blocked or (row.expires_at is not None and row.expires_at <= now):
        state = "is blocked" if row.blocked else "has expired"
        raise Conflict(f"key {row.pk} {state}: there is nothing to go on with; create a new key", code="not_in_use")


def delete(unit: UnitOfWork, key_id: int) -> None:
    row = _lock(key_id)
    _note(unit, row, describe(row), None)
    row.delete()


def delete_all(unit: UnitOfWork, tenant: rows.Tenant) -> None:
    """Delete every key of a tenant that goes."""
    for row in tenant.keys.select_related("tenant").select_for_update(of=("self",)).order_by("pk"):
        _note(unit, row, describe(row), None)
    tenant.keys.all().delete()


def compile_key(key_hash: str) -> Document | None:
    row = rows.TenantKey.objects.select_related("tenant").filter(key_hash=key_hash).first()
    if row is None:
        return None
    expires = None if row.expires_at is None else f.epoch_ms(row.expires_at)
    return present({"tenant": row.tenant.name, "prefix": row.prefix, "blocked": row.blocked, "expires_at_ms": expires})


def all_hashes() -> list[str]:
    return list(rows.TenantKey.objects.order_by("pk").values_list("key_hash", flat=True))


def _checked(fields: Mapping[str, Any]) -> KeyFields:
    checked = f.read(KeyFields, fields)
    if checked.expires_at is not None and checked.expires_at <= timezone.now():
        f.refuse_if([Problem("/expires_at", "range", "give a time to come; to end a key now, block or delete it")])
    return checked


def _lock(key_id: int) -> rows.TenantKey:
    locked = rows.TenantKey.objects.select_related("tenant").select_for_update(of=("self",))
    return _found(key_id, locked.filter(pk=key_id).first())


def _found(key_id: int, row: rows.TenantKey | None) -> rows.TenantKey:
    if row is None:
        raise NotFound(f"there is no key {key_id}")
    return row


def _note(unit: UnitOfWork, row: rows.TenantKey, before: Document | None, after: Document | None) -> None:
    unit.record(NOUN, str(row.pk), before, after)
    unit.touch(SECTION, row.key_hash)
