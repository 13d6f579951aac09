"""What a target is told: the slice of the configuration that concerns it.

Rules of the form (INTERFACES, "Revision and slices"): no floats, nulls or lists. Ratios are integers in per
mille, times integers in milliseconds, a set is a map of names to `true`, an ordered thing a map whose values
carry `order`. A field that is not set is absent. Unknown fields are kept and hashed, and ignored by this
version's readers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from wire.canonical import MAX_INTEGER

Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Millis = Annotated[int, Meta(ge=0, le=366 * 86_400_000)]
EpochMillis = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
PerMille = Annotated[int, Meta(ge=0, le=1000)]
# In Python `$` also matches before a last line end, in JSON Schema's dialect it does not: (?!\n) makes them agree.
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
# Lower-case names travel in URLs, metric labels and file names.
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$(?!\n)"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
# A model is called by the name clients send, such as "meta-llama/Llama-3.1-8B".
MODEL_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$(?!\n)"
ModelName = Annotated[str, Meta(pattern=MODEL_NAME_PATTERN)]
NameSet = dict[str, Literal[True]]
EngineKind = Literal["vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ollama"]
ActId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]


Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
TimeZone = Annotated[str, Meta(min_length=1, max_length=64)]
# Whole minutes since midnight on a clock of the tenant's time zone.
MinuteOfDay = Annotated[int, Meta(ge=0, le=1439)]


class ScheduledLimits(Struct, frozen=True, omit_defaults=True):
    """Other limits in named hours, `from_minute` inclusive to `until_minute` exclusive on the tenant's clock.

    Where `until_minute` is not above `from_minute` the hours go on past midnight; `days` (absent: every day) are those
    on which they begin. Of several that hold the first by (`order`, name) counts. A limit that is absent here stays as
    the tenant has it.
    """

    order: Count
    from_minute: MinuteOfDay
    until_minute: MinuteOfDay
    days: dict[Weekday, Literal[True]] | UnsetType = UNSET
    tpm_limit: Count | UnsetType = UNSET
    rpm_limit: Count | UnsetType = UNSET
    max_parallel_requests: Count | UnsetType = UNSET


class TemporaryLimits(Struct, frozen=True, omit_defaults=True):
    """Limits that a person gave until `expires_at_ms`; they go before the schedule. An absent one stays as it is."""

    owner: str
    reason: str
    expires_at_ms: EpochMillis
    tpm_limit: Count | UnsetType = UNSET
    rpm_limit: Count | UnsetType = UNSET
    max_parallel_requests: Count | UnsetType = UNSET
    daily_token_budget: Count | UnsetType = UNSET


class SchemaLimits(Struct, frozen=True, omit_defaults=True):
    """What a JSON schema that constrains an answer may be. Source: seed 1, section 17.

    `max_depth`: of objects and arrays within each other. `max_alternatives`: branches of one anyOf or oneOf, values of
    one enum. `max_distinct`: different schemas of the tenant within an hour, each of which engines compile anew.
    """

    max_bytes: Positive = 65_536
    max_depth: Positive = 16
    max_alternatives: Positive = 256
    max_distinct: Positive = 200


class Tenant(Struct, frozen=True, omit_defaults=True):
    """Limits of one tenant. An absent limit is no limit; absent `models`/`priority_classes` allow all.

    `daily_token_budget` is of a calendar day in `time_zone` (an IANA name). What holds at a time: policy/limits.py.
    `pins`: what clients call a model → the version of it that this tenant stays with; goes before the alias.
    """

    weight: Positive = 1
    blocked: bool = False
    tpm_limit: Count | UnsetType = UNSET
    rpm_limit: Count | UnsetType = UNSET
    max_parallel_requests: Count | UnsetType = UNSET
    max_tokens_cap: Positive | UnsetType = UNSET
    n_cap: Positive | UnsetType = UNSET
    models: NameSet | UnsetType = UNSET
    priority_classes: NameSet | UnsetType = UNSET
    default_priority_class: str | UnsetType = UNSET
    daily_token_budget: Count | UnsetType = UNSET
    time_zone: TimeZone = "UTC"
    schedule: dict[Name, ScheduledLimits] = {}
    temporary: TemporaryLimits | UnsetType = UNSET
    session_limits: str | UnsetType = UNSET
    cache_policy: str | UnsetType = UNSET
    schema_limits: SchemaLimits = SchemaLimits()
    pins: dict[ModelName, ModelName] = {}


class Key(Struct, frozen=True, omit_defaults=True):
    """A tenant key; the map's key is the SHA-256 of the secret in hex. `prefix` is its first 8 characters."""

    tenant: str
    prefix: str
    blocked: bool = False
    expires_at_ms: EpochMillis | UnsetType = UNSET


class PriorityClass(Struct, frozen=True, omit_defaults=True):
    """`rank`: lower is served first. One rank is gained per `ageing_ms` waited (0: never).

    When a pool's queue is full a request of a higher `shed_order` gives way to one of a lower.
    Of an engine's admissible KV cache its requests may make `kv_ceiling_permille` full; the rest is kept for others.
    What the class sets of the SLO goes before what the pool sets.
    """

    rank: Count
    ageing_ms: Millis = 0
    queue_ttl_ms: Millis | UnsetType = UNSET
    shed_order: Count = 0
    kv_ceiling_permille: Annotated[int, Meta(ge=1, le=1000)] = 1000
    ttft_slo_ms: Millis | UnsetType = UNSET
    tpot_slo_ms: Millis | UnsetType = UNSET
    e2e_slo_ms: Millis | UnsetType = UNSET
    objective_permille: PerMille | UnsetType = UNSET


class SessionLimits(Struct, frozen=True, omit_defaults=True):
    """What one session (`X-Session-Id`) of a tenant may take. An absent limit is no limit. Source: seed 1, section 14.

    `max_iterations`: model calls. `max_depth`: of `X-Agent-Depth`. `max_repeated_calls`: the same tool with the same
    arguments in a row. `max_cost_micros`: by the models' prices. A session that nobody used for `idle_ms` is forgotten.
    """

    max_iterations: Positive | UnsetType = UNSET
    max_tokens: Positive | UnsetType = UNSET
    max_depth: Count | UnsetType = UNSET
    max_repeated_calls: Positive | UnsetType = UNSET
    max_cost_micros: Count | UnsetType = UNSET
    idle_ms: Millis = 3_600_000


class ExactCache(Struct, frozen=True, omit_defaults=True):
    """Answers to the same request again, kept for `ttl_ms`."""

    ttl_ms: Millis = 3_600_000
    max_entries: Positive = 10_000


class SemanticCache(Struct, frozen=True, omit_defaults=True):
    """Answers to a question that means the same: at least `similarity_permille` by `embedding_model`.

    Only answers that somebody approved or that were verified are given again (`only_verified`). A question with one of
    the words `time_bound` in it is kept for `time_bound_ttl_ms` alone. Source: seed 1, section 12.
    """

    embedding_model: str
    similarity_permille: PerMille = 950
    ttl_ms: Millis = 3_600_000
    max_entries: Positive = 10_000
    only_verified: bool = True
    time_bound: dict[Annotated[str, Meta(min_length=1, max_length=64)], Literal[True]] = {}
    time_bound_ttl_ms: Millis = 300_000


class CachePolicy(Struct, frozen=True, omit_defaults=True):
    """What a gateway may answer without an engine, for the tenants and models that name it. Absent: not at all."""

    exact: ExactCache | UnsetType = UNSET
    semantic: SemanticCache | UnsetType = UNSET


class Model(Struct, frozen=True, omit_defaults=True):
    """`tokenizer` and `chat_template` are SHA-256 of artifacts: a Hugging Face tokenizer.json, a Jinja template.

    Prices are of a token, in millionths of whatever money the fleet is accounted in. `adapter`: it is this LoRA adapter
    of the engines in its routes' pools, which serve another model beside it.
    """

    max_context_tokens: Positive
    default_max_tokens: Positive
    max_tokens: Positive
    kv_bytes_per_token: Count = 0
    tokenizer: Sha256 | UnsetType = UNSET
    chat_template: Sha256 | UnsetType = UNSET
    prompt_token_cost_micros: Count = 0
    output_token_cost_micros: Count = 0
    cache_policy: str | UnsetType = UNSET
    adapter: Name | UnsetType = UNSET


class Alias(Struct, frozen=True):
    """Another name that clients may call a model by. Rules and permissions are about the model that it stands for."""

    model: str


class BreakerThresholds(Struct, frozen=True, omit_defaults=True):
    """When the automatic breaker of an engine, or of a whole pool, opens, and for how long. Source: seed 1, section 9.

    An answer whose first token takes longer than `timeout_ms` (0: none does) counts among the timeouts; those have a
    share of their own, since an engine that is merely full makes them too.
    """

    error_permille: PerMille = 200
    timeout_permille: PerMille = 500
    timeout_ms: Millis = 0
    minimum_requests: Positive = 20
    window_ms: Millis = 30_000
    cooldown_ms: Millis = 10_000
    half_open_probes: Positive = 3


class Pool(Struct, frozen=True, omit_defaults=True):
    """Engines that serve one model version for one kind of work.

    `max_concurrency`: requests at its engines together, over all gateways. `adaptive_concurrency`: gateways find the
    number themselves, from time to first token and queue time, `max_concurrency` being the most. `adapters`: LoRA
    adapters that each of its engines holds.
    """

    model: str
    work: Literal["short", "long", "batch", "embedding", "rerank"] = "short"
    kv_admit_permille: PerMille = 900
    queue_cap: Count = 64
    queue_ttl_ms: Millis = 5_000
    stale_telemetry: Literal["close", "hold", "open"] = "hold"
    max_concurrency: Positive | UnsetType = UNSET
    adaptive_concurrency: bool = False
    ttft_slo_ms: Millis | UnsetType = UNSET
    tpot_slo_ms: Millis | UnsetType = UNSET
    e2e_slo_ms: Millis | UnsetType = UNSET
    objective_permille: PerMille = 950
    breaker: BreakerThresholds = BreakerThresholds()
    adapters: NameSet = {}


class Engine(Struct, frozen=True, omit_defaults=True):
    """One served endpoint. `url` is http(s)://host[:port]. `cordoned`: its node or itself takes no new work."""

    url: str
    kind: EngineKind
    pool: str
    served_model: str
    node: str | UnsetType = UNSET
    kv_capacity_tokens: Count | UnsetType = UNSET
    cordoned: bool = False
    api_key: str | UnsetType = UNSET


class Match(Struct, frozen=True, omit_defaults=True):
    """Conditions of a route, all of which must hold. Token bounds: `min` inclusive, `max` exclusive."""

    models: NameSet | UnsetType = UNSET
    tenants: NameSet | UnsetType = UNSET
    priority_classes: NameSet | UnsetType = UNSET
    min_prompt_tokens: Count | UnsetType = UNSET
    max_prompt_tokens: Count | UnsetType = UNSET
    min_max_tokens: Count | UnsetType = UNSET
    max_max_tokens: Count | UnsetType = UNSET


class Fallback(Struct, frozen=True):
    order: Count


EscalationReason = Literal["engine_failed", "length", "empty", "invalid_json", "refusal", "low_confidence"]


class Cascade(Struct, frozen=True, omit_defaults=True):
    """A small model is asked first, in `pool`; the route's own pools where its answer is not good enough.

    `escalate_on`: what makes an answer not good enough. `low_confidence` is a mean probability of its tokens below
    `confidence_permille`. Prompts longer than `max_prompt_tokens` go to the route's pools at once. Source: seed 1,
    section 12.
    """

    pool: str
    escalate_on: dict[EscalationReason, Literal[True]]
    confidence_permille: PerMille | UnsetType = UNSET
    max_prompt_tokens: Count | UnsetType = UNSET


class Route(Struct, frozen=True, omit_defaults=True):
    """Rules are tried by (`order`, name). `pools` maps pool → weight in per mille (they sum to 1000), or
    `reject` gives the message of a refusal."""

    order: Count
    match: Match = Match()
    pools: dict[str, PerMille] | UnsetType = UNSET
    fallbacks: dict[str, Fallback] | UnsetType = UNSET
    reject: str | UnsetType = UNSET
    cascade: Cascade | UnsetType = UNSET


class Override(Struct, frozen=True):
    """A breaker forced `open` or `closed` by a person until `expires_at_ms`. The strictest unexpired holds."""

    subject_kind: Literal["pool", "engine"]
    subject: str
    state: Literal["open", "closed"]
    owner: str
    reason: str
    expires_at_ms: EpochMillis


class GatewaySnapshot(Struct, frozen=True, tag_field="kind", tag="gateway"):
    """Everything a gateway needs to serve with the control plane away."""

    schema: Literal[1]
    tenants: dict[Name, Tenant] = {}
    keys: dict[Sha256, Key] = {}
    priority_classes: dict[Name, PriorityClass] = {}
    session_limits: dict[Name, SessionLimits] = {}
    cache_policies: dict[Name, CachePolicy] = {}
    models: dict[ModelName, Model] = {}
    aliases: dict[ModelName, Alias] = {}
    pools: dict[Name, Pool] = {}
    engines: dict[Name, Engine] = {}
    routes: dict[Name, Route] = {}
    overrides: dict[Name, Override] = {}


FolderPath = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^/[^\x00-\x1f\x7f]*$(?!\n)")]
# As vLLM's command line has it, without the dashes before it.
EngineArgument = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,63}$(?!\n)")]
# Characters that may stand in a YAML file.
_Text = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*$(?!\n)")]
_Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
# A share such as 0.92 is given as text: a slice holds no floats.
EngineArgumentValue = _Text | _Integer | bool


class NodeEngine(Struct, frozen=True, omit_defaults=True):
    """An engine as its node's agent needs it: where to find it, and the labels to give it.

    `served_model`: the name that the engine itself knows the model by. `cordoned`: it, or its node, takes no new work.
    `arguments`: what it shall be started with, as its pool says. `adapters`: the LoRA adapters that it shall hold, by
    the folder on this node.
    """

    url: str
    kind: EngineKind
    pool: str
    model: str
    served_model: str = ""
    cordoned: bool = False
    arguments: Annotated[dict[EngineArgument, EngineArgumentValue], Meta(max_length=64)] = {}
    adapters: Annotated[dict[Name, FolderPath], Meta(max_length=64)] = {}


class Act(Struct, frozen=True, omit_defaults=True):
    """One thing that an agent shall do once, on its node or on one `engine` of it: what wire/acts.py lists.

    Acts on one engine, and those on the node, are done in their `order`. After `expires_at_ms` none is begun. What this
    version does not know is refused by itself, and keeps no other part of a slice from being applied.
    """

    action: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)")]
    order: Count
    issued_at_ms: EpochMillis
    expires_at_ms: EpochMillis
    engine: Name | UnsetType = UNSET
    arguments: dict[str, str | int | bool | dict[str, str | int | bool]] = {}


class NodeState(Struct, frozen=True, omit_defaults=True):
    name: Name
    cordoned: bool = False
    cordon_reason: str | UnsetType = UNSET


class NodeSnapshot(Struct, frozen=True, tag_field="kind", tag="node"):
    """What one node's agent is told: its own state and engines, nobody else's."""

    schema: Literal[1]
    node: NodeState
    engines: dict[Name, NodeEngine] = {}
    acts: dict[ActId, Act] = {}


Snapshot = GatewaySnapshot | NodeSnapshot
