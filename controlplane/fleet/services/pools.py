"""Pools: engines that serve one model version for one kind of work."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, as_set, present
from controlplane.fleet import models as rows
from controlplane.fleet.services.models import MODELS
from wire import snapshot
from wire.canonical import Document
from wire.engine_arguments import SECRET_ENDS
from wire.problems import Problem

_PLAIN = (
    "work", "kv_admit_permille", "queue_cap", "queue_ttl_ms", "stale_telemetry", "max_concurrency",
    "adaptive_concurrency",
    "ttft_slo_ms", "tpot_slo_ms", "e2e_slo_ms", "objective_permille",
)  # fmt: skip


_ENTRIES_MAX = 64
EngineArgument = Annotated[
    str,
    f.Like(
        snapshot.EngineArgument, "give an argument as on the engine's command line without its dashes: max-num-seqs"
    ),
]
EngineArgumentValue = Annotated[
    Any,
    f.Like(
        snapshot.EngineArgumentValue,
        "give a text of at most 1000 characters on one line, a whole number, true or false; a share as text: '0.9'",
    ),
]
FolderPath = Annotated[str, f.Like(snapshot.FolderPath, "give an absolute path on the node: /srv/adapters/support")]


def _without_secrets(arguments: dict[str, Any]) -> dict[str, Any]:
    for name in arguments:
        if name.endswith(SECRET_ENDS):
            message = f"{name} is a secret, which a configuration that is sent around must not hold"
            raise PydanticCustomError("secret", "{message}", {"message": message})
    return arguments


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
    gateways find the number themselves, that one being the most. `engine_arguments`: what its engines shall be started
    with. `adapters`: LoRA adapters that each of them shall hold, name → folder on the node.
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
    engine_arguments: Annotated[
        dict[EngineArgument, EngineArgumentValue], Field(max_length=_ENTRIES_MAX), AfterValidator(_without_secrets)
    ] = {}
    adapters: Annotated[dict[f.Name, FolderPath], Field(max_length=_ENTRIES_MAX)] = {}


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
            "engine_arguments": row.engine_arguments,
            "adapters": row.adapters,
        }

    def assign(self, row: rows.Pool, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        if model := MODELS.referenced("/model", values["model"], problems):
            row.model = model
        super().assign(row, {name: values[name] for name in (*_PLAIN, "engine_arguments", "adapters")})
        super().assign(row, {f"breaker_{name}": value for name, value in values["breaker"].items()})
        return problems

    def wire_form(self, row: rows.Pool) -> Document:
        """`adapters` are their names, for gateways; arguments and folders are told to nodes alone (configs.slices)."""
        described = self.describe(row)
        arguments, adapters = described.pop("engine_arguments"), described.pop("adapters")
        del described["name"]
        if arguments:
            described["engine_arguments"] = arguments
        if adapters:
            described |= {"adapters": as_set(list(adapters)), "adapter_folders": adapters}
        return present(described)

    def from_wire(self, content: Document) -> Document:
        fields = {name: value for name, value in content.items() if name not in ("adapters", "adapter_folders")}
        return fields | ({"adapters": content["adapter_folders"]} if "adapter_folders" in content else {})

    def users(self, row: rows.Pool) -> list[str]:
        return [f"engine {name!r}" for name in row.engines.order_by("name").values_list("name", flat=True)]


POOLS = PoolNoun()
