"""Rows of who asks: priority classes, tenants, their keys."""

from __future__ import annotations

from django.db import models


class PriorityClass(models.Model):
    """`rank`: lower is served first (converted where an engine counts the other way)."""

    name = models.CharField(max_length=63, unique=True)
    rank = models.PositiveBigIntegerField()
    ageing_ms = models.PositiveBigIntegerField(default=0)
    queue_ttl_ms = models.PositiveBigIntegerField(null=True)

    def __str__(self) -> str:
        return self.name


class Tenant(models.Model):
    """A null limit is no limit; a null list allows all."""

    name = models.CharField(max_length=63, unique=True)
    weight = models.PositiveBigIntegerField(default=1)
    blocked = models.BooleanField(default=False)
    tpm_limit = models.PositiveBigIntegerField(null=True)
    rpm_limit = models.PositiveBigIntegerField(null=True)
    max_parallel_requests = models.PositiveBigIntegerField(null=True)
    max_tokens_cap = models.PositiveBigIntegerField(null=True)
    n_cap = models.PositiveBigIntegerField(null=True)
    priority_classes = models.JSONField(null=True)
    default_priority_class = models.CharField(max_length=63, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    # Last: from here on `models` in this class is the field. Scripts know it by this name.
    models = models.JSONField(null=True)

    def __str__(self) -> str:
        return self.name


class TenantKey(models.Model):
    """A tenant's API key: `hw-` and 32 random bytes in base62, shown once."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="keys")
    key_hash = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=8)
    label = models.CharField(max_length=100, blank=True)
    blocked = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
