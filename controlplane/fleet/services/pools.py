"""Pools: engines that serve one model version for one kind of work."""

from __future__ import annotations

from typing import ClassVar, Literal

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.fleet import models as rows
from controlplane.fleet.services.models import MODELS
from wire.canonical import Document
from wire.problems import Problem

_PLAIN = (
    "work", "kv_admit_permille", "queue_cap", "queue_ttl_ms", "stale_telemetry", "max_concurrency",
    "adaptive_concurrency",
    "ttft_slo_ms", "tpot_slo_ms", "e2e_slo_ms", "objective_permille",
)  # fmt: skip


class BreakerFields(f.Fields):
    """When the automatic breaker of an engine, or of the whole pool, opens, and for how long.

    An answer whose first token takes longer than `timeout_ms` counts among the timeouts; 0: none does.
    """

    error_permille: f.PerMille = f.default_of(rows.Pool, "breaker_error_permille")
    timeout_permille: f.PerMille = f.default_of(rows.Pool, "breaker_timeout_permille")
    timeout_ms: f.Millis = f.default_of(rows.Pool, "breaker_timeout_ms")
    minimum_requests: f.Positive = f.default_of(rows.Pool, "breaker_minimum_requests")
    window_ms: f.Millis = f.default_of(rows.Pool, "breaker_window_ms")
    cooldown_ms: f.Millis = f.default_of(rows.Pool, "breaker_cooldown_ms")
    half_open_probes: f.Positive = f.default_of(rows.Pool, "breaker_half_open_probes")


class PoolFields(f.Fields):
    """SLO fields that are null are not part of the goodput judgement.

    `max_concurrency`: requests at its engines together; null: as many as KV cache admits. `adaptive_concurrency`:
    gateways find the number themselves, that one being the most.
    """

    model: f.ModelName
    work: Literal["short", "long", "batch", "embedding", "rerank"] = f.default_of(rows.Pool, "work")
    kv_admit_permille: f.PerMille = f.default_of(rows.Pool, "kv_admit_permille")
    queue_cap: f.Count = f.default_of(rows.Pool, "queue_cap")
    queue_ttl_ms: f.Millis = f.default_of(rows.Pool, "queue_ttl_ms")
    stale_telemetry: Literal["close", "hold", "open"] = f.default_of(rows.Pool, "stale_telemetry")
    max_concurrency: f.Positive | None = None
    adaptive_concurrency: bool = f.default_of(rows.Pool, "adaptive_concurrency")
    ttft_slo_ms: f.Millis | None = None
    tpot_slo_ms: f.Millis | None = None
    e2e_slo_ms: f.Millis | None = None
    objective_permille: f.PerMille = f.default_of(rows.Pool, "objective_permille")
    breaker: BreakerFields = BreakerFields()


class PoolNoun(Noun[rows.Pool]):
    noun = "pool"
    row = rows.Pool
    fields = PoolFields
    section = "pools"
    order: ClassVar[int] = 20
    related = ("model",)

    def describe(self, row: rows.Pool) -> Document:
        return {
            "name": row.name,
            "model": row.model.name,
            **{name: getattr(row, name) for name in _PLAIN},
            "breaker": {name: getattr(row, f"breaker_{name}") for name in BreakerFields.model_fields},
        }

    def assign(self, row: rows.Pool, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        if model := MODELS.referenced("/model", values["model"], problems):
            row.model = model
        super().assign(row, {name: values[name] for name in _PLAIN})
        super().assign(row, {f"breaker_{name}": value for name, value in values["breaker"].items()})
        return problems

    def wire_form(self, row: rows.Pool) -> Document:
        described = self.describe(row)
        del described["name"]
        return present(described)

    def users(self, row: rows.Pool) -> list[str]:
        return [f"engine {name!r}" for name in row.engines.order_by("name").values_list("name", flat=True)]


POOLS = PoolNoun()
