"""What a target is told: the slice of the configuration that concerns it.

Rules of the form (INTERFACES, "Revision and slices"): no floats, nulls or lists. Ratios are integers in per
mille, times integers in milliseconds, a set is a map of names to `true`, an ordered thing a map whose values
carry `order`. A field that is not set is absent. Unknown fields are kept and hashed, and ignored by this
version's readers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container, Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from wire.canonical import MAX_INTEGER, Document
from wire.problems import Problem as Problem
from wire.problems import pointer, type_problems

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


class Tenant(Struct, frozen=True, omit_defaults=True):
    """Limits of one tenant. An absent limit is no limit; absent `models`/`priority_classes` allow all."""

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


class Key(Struct, frozen=True, omit_defaults=True):
    """A tenant key; the map's key is the SHA-256 of the secret in hex. `prefix` is its first 8 characters."""

    tenant: str
    prefix: str
    blocked: bool = False
    expires_at_ms: EpochMillis | UnsetType = UNSET


class PriorityClass(Struct, frozen=True, omit_defaults=True):
    """`rank`: lower is served first. One rank is gained per `ageing_ms` waited (0: never)."""

    rank: Count
    ageing_ms: Millis = 0
    queue_ttl_ms: Millis | UnsetType = UNSET


class Model(Struct, frozen=True, omit_defaults=True):
    """`tokenizer` is the SHA-256 of an artifact (a Hugging Face tokenizer.json)."""

    max_context_tokens: Positive
    default_max_tokens: Positive
    max_tokens: Positive
    kv_bytes_per_token: Count = 0
    tokenizer: Sha256 | UnsetType = UNSET


class BreakerThresholds(Struct, frozen=True, omit_defaults=True):
    """When the automatic breaker of an engine opens, and for how long. Source: seed 1, section 9."""

    error_permille: PerMille = 200
    minimum_requests: Positive = 20
    window_ms: Millis = 30_000
    cooldown_ms: Millis = 10_000
    half_open_probes: Positive = 3


class Pool(Struct, frozen=True, omit_defaults=True):
    """Engines that serve one model version for one kind of work."""

    model: str
    work: Literal["short", "long", "batch", "embedding", "rerank"] = "short"
    kv_admit_permille: PerMille = 900
    queue_cap: Count = 64
    queue_ttl_ms: Millis = 5_000
    stale_telemetry: Literal["close", "hold", "open"] = "hold"
    ttft_slo_ms: Millis | UnsetType = UNSET
    tpot_slo_ms: Millis | UnsetType = UNSET
    e2e_slo_ms: Millis | UnsetType = UNSET
    objective_permille: PerMille = 950
    breaker: BreakerThresholds = BreakerThresholds()


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


class Route(Struct, frozen=True, omit_defaults=True):
    """Rules are tried by (`order`, name). `pools` maps pool → weight in per mille (they sum to 1000), or
    `reject` gives the message of a refusal."""

    order: Count
    match: Match = Match()
    pools: dict[str, PerMille] | UnsetType = UNSET
    fallbacks: dict[str, Fallback] | UnsetType = UNSET
    reject: str | UnsetType = UNSET


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
    models: dict[ModelName, Model] = {}
    pools: dict[Name, Pool] = {}
    engines: dict[Name, Engine] = {}
    routes: dict[Name, Route] = {}
    overrides: dict[Name, Override] = {}


class NodeEngine(Struct, frozen=True, omit_defaults=True):
    """An engine as its node's agent needs it: where to find it, and the labels to give it.

    `served_model`: the name that the engine itself knows the model by. `cordoned`: it, or its node, takes no new work.
    """

    url: str
    kind: EngineKind
    pool: str
    model: str
    served_model: str = ""
    cordoned: bool = False


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


_ENGINE_URL = re.compile(
    r"https?://(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:(?P<port>[0-9]{1,5}))?"
)


def engine_url_problem(url: str) -> str | None:
    """What is wrong with an engine's address, or None. Credentials in it would end up in logs and on pages."""
    match = _ENGINE_URL.fullmatch(url)
    if match is None or not 1 <= int(match["port"] or 80) <= 65_535:
        return "must be http(s)://host[:port] without credentials, path or query"
    if match["ipv6"] and not _is_ipv6_address(match["ipv6"]):
        return "must have an IPv6 address between its brackets"
    return None


def _is_ipv6_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _engine_url_problems(engines: dict[str, Engine] | dict[str, NodeEngine]) -> list[Problem]:
    found = ((name, engine_url_problem(engine.url)) for name, engine in engines.items())
    return [Problem(pointer(pointer("/engines", name), "url"), "url", wrong) for name, wrong in found if wrong]


def gateway_references(snapshot: GatewaySnapshot) -> list[Problem]:
    """Every name that the snapshot uses and does not define, and every sum that does not add up.

    The same check runs where a change is written and where a target applies it, so a broken reference is
    refused by name in both places.
    """
    s = snapshot
    problems: list[Problem] = []
    for name, tenant in s.tenants.items():
        path = pointer("/tenants", name)
        classes, default = tenant.priority_classes or {}, tenant.default_priority_class
        problems += _missing(f"{path}/models", "model", tenant.models or {}, s.models)
        problems += _missing(f"{path}/priority_classes", "priority class", classes, s.priority_classes)
        if isinstance(default, str):
            problems += _unknown(f"{path}/default_priority_class", "priority class", default, s.priority_classes)
    for digest, key in s.keys.items():
        problems += _unknown(f"{pointer('/keys', digest)}/tenant", "tenant", key.tenant, s.tenants)
    for name, pool in s.pools.items():
        problems += _unknown(f"{pointer('/pools', name)}/model", "model", pool.model, s.models)
    for name, engine in s.engines.items():
        problems += _unknown(f"{pointer('/engines', name)}/pool", "pool", engine.pool, s.pools)
    for name, route in s.routes.items():
        problems += route_problems(name, route, s.models, s.tenants, s.priority_classes, s.pools)
    for name, override in s.overrides.items():
        subjects: Container[str] = s.pools if override.subject_kind == "pool" else s.engines
        path = f"{pointer('/overrides', name)}/subject"
        problems += _unknown(path, override.subject_kind, override.subject, subjects)
    return problems


def route_problems(
    name: str,
    route: Route,
    models: Container[str],
    tenants: Container[str],
    priority_classes: Container[str],
    pools: Container[str],
) -> list[Problem]:
    """What is wrong with one route, given the names that exist."""
    path = pointer("/routes", name)
    match = route.match
    problems = [
        *_missing(f"{path}/match/models", "model", match.models or {}, models),
        *_missing(f"{path}/match/tenants", "tenant", match.tenants or {}, tenants),
        *_missing(f"{path}/match/priority_classes", "priority class", match.priority_classes or {}, priority_classes),
        *_missing(f"{path}/pools", "pool", route.pools or {}, pools),
        *_missing(f"{path}/fallbacks", "pool", route.fallbacks or {}, pools),
    ]
    for low, high in (("min_prompt_tokens", "max_prompt_tokens"), ("min_max_tokens", "max_max_tokens")):
        lower, upper = getattr(match, low), getattr(match, high)
        if lower is not UNSET and upper is not UNSET and lower >= upper:
            problems.append(Problem(f"{path}/match/{low}", "range", f"{low} {lower} must be below {high} {upper}"))
    if (route.pools is UNSET) == (route.reject is UNSET):
        problems.append(Problem(path, "one_of", "a route needs either pools or reject"))
    if isinstance(route.pools, dict) and (total := sum(route.pools.values())) != 1000:
        message = f"pool weights sum to {total}; they must sum to 1000 per mille"
        problems.append(Problem(f"{path}/pools", "sum", message))
    return problems


def _unknown(path: str, kind: str, name: str, known: Container[str]) -> list[Problem]:
    return [] if name in known else [Problem(path, "reference", f"{kind} {name!r} does not exist")]


def _missing(path: str, kind: str, used: Iterable[str], known: Container[str]) -> list[Problem]:
    """The same for a set of names; each problem is at the name's own path."""
    return [problem for name in used for problem in _unknown(pointer(path, name), kind, name, known)]


def decode_snapshot(content: Document) -> Snapshot:
    """Read a slice's content, types, ranges and references checked.

    Raises: SnapshotRefused with every reason found: all type errors, or, where the types hold, all broken references.
    """
    try:
        snapshot: Snapshot = msgspec.convert(content, Snapshot)
    except msgspec.ValidationError as error:
        raise SnapshotRefused(type_problems(content, Snapshot)) from error
    problems = _engine_url_problems(snapshot.engines)
    if isinstance(snapshot, GatewaySnapshot):
        problems += gateway_references(snapshot)
    if problems:
        raise SnapshotRefused(problems)
    return snapshot


class SnapshotRefused(ValueError):
    """A slice that a target cannot run. `problems` says where and why; it goes into the NACK."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{p.path}: {p.message}" for p in problems[:5]))
        self.problems = problems
