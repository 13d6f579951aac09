"""Rows of who asks: tenants, their keys and limits, and what tenants name: classes, session limits, cache policies."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class PriorityClass(models.Model):
    """`rank`: lower is served first (converted where an engine counts the other way)."""

    name = models.CharField(max_length=63, unique=True)
    rank = models.PositiveBigIntegerField()
    ageing_ms = models.PositiveBigIntegerField(default=0)
    queue_ttl_ms = models.PositiveBigIntegerField(null=True)
    shed_order = models.PositiveBigIntegerField(default=0)
    # Of an engine's admissible KV cache: so full may requests of this class make it.
    kv_ceiling_permille = models.PositiveIntegerField(default=1000)
    # Null: what the pool sets counts.
    ttft_slo_ms = models.PositiveBigIntegerField(null=True)
    tpot_slo_ms = models.PositiveBigIntegerField(null=True)
    e2e_slo_ms = models.PositiveBigIntegerField(null=True)
    objective_permille = models.PositiveIntegerField(null=True)

    def __str__(self) -> str:
        return self.name


class SessionLimits(models.Model):
    """What one session of a tenant may take. A null limit is no limit."""

    name = models.CharField(max_length=63, unique=True)
    max_iterations = models.PositiveBigIntegerField(null=True)
    max_tokens = models.PositiveBigIntegerField(null=True)
    max_depth = models.PositiveBigIntegerField(null=True)
    max_repeated_calls = models.PositiveBigIntegerField(null=True)
    max_cost_micros = models.PositiveBigIntegerField(null=True)
    idle_ms = models.PositiveBigIntegerField(default=3_600_000)

    def __str__(self) -> str:
        return self.name


class CachePolicy(models.Model):
    """What gateways may answer without an engine, in the form of `wire.snapshot.CachePolicy`. Null: not at all."""

    name = models.CharField(max_length=63, unique=True)
    exact = models.JSONField(null=True)
    semantic = models.JSONField(null=True)

    def __str__(self) -> str:
        return self.name


class Tenant(models.Model):
    """A null limit is no limit; a null list allows all. `display_name`: what people call it; empty: its name."""

    name = models.CharField(max_length=63, unique=True)
    display_name = models.CharField(max_length=120, blank=True, default="", db_default="")
    weight = models.PositiveBigIntegerField(default=1)
    blocked = models.BooleanField(default=False)
    tpm_limit = models.PositiveBigIntegerField(null=True)
    rpm_limit = models.PositiveBigIntegerField(null=True)
    max_parallel_requests = models.PositiveBigIntegerField(null=True)
    max_tokens_cap = models.PositiveBigIntegerField(null=True)
    n_cap = models.PositiveBigIntegerField(null=True)
    priority_classes = models.JSONField(null=True)
    default_priority_class = models.CharField(max_length=63, blank=True)
    daily_token_budget = models.PositiveBigIntegerField(null=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    # Name → hours, in the form of `services.schedule.HoursFields`.
    schedule = models.JSONField(default=dict)
    session_limits = models.ForeignKey(SessionLimits, null=True, on_delete=models.PROTECT, related_name="tenants")
    cache_policy = models.ForeignKey(CachePolicy, null=True, on_delete=models.PROTECT, related_name="tenants")
    # In the form of `wire.snapshot.SchemaLimits`; what is absent is as there.
    schema_limits = models.JSONField(default=dict)
    # What clients call a model → the version of it that this tenant stays with.
    pins = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    # Last: from here on `models` in this class is the field. Scripts know it by this name.
    models = models.JSONField(null=True)

    def __str__(self) -> str:
        return self.name


class TemporaryLimits(models.Model):
    """Limits that a person gave a tenant until they expire or are taken back; a null one stays as the tenant has it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="temporary")
    owner = models.CharField(max_length=150)
    reason = models.CharField(max_length=500)
    expires_at = models.DateTimeField()
    tpm_limit = models.PositiveBigIntegerField(null=True)
    rpm_limit = models.PositiveBigIntegerField(null=True)
    max_parallel_requests = models.PositiveBigIntegerField(null=True)
    daily_token_budget = models.PositiveBigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="temporary_limits_by_end")]


class TenantKey(models.Model):
    """A tenant's API key: `hw-` and 32 random bytes in base62, shown once. `replaced_by`: what it was rotated into."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="keys")
    key_hash = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=8)
    label = models.CharField(max_length=100, blank=True)
    blocked = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True)
    replaced_by = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="replaces")
    created_at = models.DateTimeField(auto_now_add=True)
