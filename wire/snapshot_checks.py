"""What a target checks of its slice before it applies it, and the control plane before it publishes: names and sums."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec import UNSET

from wire.canonical import Document
from wire.problems import Problem, pointer, type_problems
from wire.snapshot import Cascade, Engine, GatewaySnapshot, Model, NodeEngine, Pool, Route, Snapshot, Tenant

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
    callable_names = s.models.keys() | s.aliases.keys()
    for name, tenant in s.tenants.items():
        path = pointer("/tenants", name)
        classes, default = tenant.priority_classes or {}, tenant.default_priority_class
        problems += _missing(f"{path}/models", "model", tenant.models or {}, callable_names)
        problems += _missing(f"{path}/priority_classes", "priority class", classes, s.priority_classes)
        if isinstance(default, str):
            problems += _unknown(f"{path}/default_priority_class", "priority class", default, s.priority_classes)
        if isinstance(tenant.session_limits, str):
            problems += _unknown(f"{path}/session_limits", "session limits", tenant.session_limits, s.session_limits)
        if isinstance(tenant.cache_policy, str):
            problems += _unknown(f"{path}/cache_policy", "cache policy", tenant.cache_policy, s.cache_policies)
        problems += _pin_problems(path, tenant, s)
        problems += tenant_problems(name, tenant)
    for name, policy in s.cache_policies.items():
        if policy.semantic is not UNSET:
            model_path = f"{pointer('/cache_policies', name)}/semantic/embedding_model"
            problems += _unknown(model_path, "model", policy.semantic.embedding_model, s.models)
    for name, model in s.models.items():
        if isinstance(model.cache_policy, str):
            problems += _unknown(
                f"{pointer('/models', name)}/cache_policy", "cache policy", model.cache_policy, s.cache_policies
            )
    for name, alias in s.aliases.items():
        problems += _unknown(f"{pointer('/aliases', name)}/model", "model", alias.model, s.models)
        if name in s.models:
            problems.append(Problem(pointer("/aliases", name), "unique", f"{name!r} is the name of a model"))
    for digest, key in s.keys.items():
        problems += _unknown(f"{pointer('/keys', digest)}/tenant", "tenant", key.tenant, s.tenants)
    for name, pool in s.pools.items():
        problems += _unknown(f"{pointer('/pools', name)}/model", "model", pool.model, s.models)
        if pool.model in s.models and (adapter := s.models[pool.model].adapter) is not UNSET:
            message = f"{pool.model!r} is the adapter {adapter!r}; give the model that it adapts"
            problems.append(Problem(f"{pointer('/pools', name)}/model", "adapter", message))
    for name, engine in s.engines.items():
        problems += _unknown(f"{pointer('/engines', name)}/pool", "pool", engine.pool, s.pools)
    for name, route in s.routes.items():
        problems += route_problems(name, route, s.models, s.tenants, s.priority_classes, s.pools)
        problems += _same_model_problems(name, route, s.pools)
        problems += _adapter_problems(name, route, s.models, s.pools)
    for name, override in s.overrides.items():
        subjects: Container[str] = s.pools if override.subject_kind == "pool" else s.engines
        path = f"{pointer('/overrides', name)}/subject"
        problems += _unknown(path, override.subject_kind, override.subject, subjects)
    return problems


def tenant_problems(name: str, tenant: Tenant) -> list[Problem]:
    """What is wrong with one tenant by itself: its time zone and its scheduled hours."""
    path = pointer("/tenants", name)
    problems = []
    if not known_time_zone(tenant.time_zone):
        message = f"{tenant.time_zone!r} is no IANA time zone; give one such as Europe/Istanbul"
        problems.append(Problem(f"{path}/time_zone", "time_zone", message))
    for hours, limits in tenant.schedule.items():
        if limits.days is not UNSET and not limits.days:
            message = "give at least one day, or leave `days` out for every day"
            problems.append(Problem(f"{pointer(f'{path}/schedule', hours)}/days", "length", message))
    return problems


@lru_cache(maxsize=1000)
def known_time_zone(name: str) -> bool:
    """Whether this machine knows the IANA time zone. Aliases of the system's own zone are not taken for one."""
    # Late: agents read slices too, and have no tenants.
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return name not in ("localtime", "posixrules", "Factory")


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
    if route.cascade is not UNSET:
        problems += _cascade_problems(f"{path}/cascade", route, route.cascade, pools)
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


def _cascade_problems(path: str, route: Route, cascade: Cascade, pools: Container[str]) -> list[Problem]:
    problems = _unknown(f"{path}/pool", "pool", cascade.pool, pools)
    if route.pools is UNSET:
        problems.append(Problem(path, "one_of", "a route that rejects has nothing to escalate to; give pools"))
    elif cascade.pool in route.pools:
        problems.append(Problem(f"{path}/pool", "unique", f"pool {cascade.pool!r} is what the route escalates to"))
    if not cascade.escalate_on:
        problems.append(Problem(f"{path}/escalate_on", "length", "give at least one reason to escalate"))
    if ("low_confidence" in cascade.escalate_on) == (cascade.confidence_permille is UNSET):
        message = "`low_confidence` and `confidence_permille` need each other"
        problems.append(Problem(f"{path}/confidence_permille", "one_of", message))
    return problems


def _same_model_problems(name: str, route: Route, pools: Mapping[str, Pool]) -> list[Problem]:
    """A cascade that would ask one model twice. Names that do not exist are told of elsewhere."""
    if route.cascade is UNSET or route.cascade.pool not in pools:
        return []
    small = pools[route.cascade.pool].model
    others = sorted((route.pools or {}).keys() - {route.cascade.pool})
    same = [pool for pool in others if pool in pools and pools[pool].model == small]
    if not same:
        return []
    message = (
        f"{', '.join(same)} and {route.cascade.pool} serve the same model, {small!r}; a cascade needs a smaller one"
    )
    return [Problem(f"{pointer('/routes', name)}/cascade/pool", "same_model", message)]


def _pin_problems(path: str, tenant: Tenant, s: GatewaySnapshot) -> list[Problem]:
    """A pin is of what clients may call a model, to one that there is."""
    problems = []
    for name, model in tenant.pins.items():
        at = pointer(f"{path}/pins", name)
        problems += _unknown(at, "model", model, s.models)
        if name not in s.aliases and name not in s.models:
            problems.append(Problem(at, "reference", f"{name!r} is neither a model nor an alias of one"))
    return problems


def _adapter_problems(name: str, route: Route, models: Mapping[str, Model], pools: Mapping[str, Pool]) -> list[Problem]:
    """Pools that a route gives to a model which they cannot serve: their engines lack the adapter that it is."""
    problems = []
    for asked in route.match.models or {}:
        adapter = models[asked].adapter if asked in models else UNSET
        if adapter is UNSET:
            continue
        for field, named in (("pools", route.pools or {}), ("fallbacks", route.fallbacks or {})):
            for pool in named:
                if pool in pools and adapter not in pools[pool].adapters:
                    message = f"pool {pool!r} does not hold the adapter {adapter!r}, which model {asked!r} is"
                    problems.append(Problem(pointer(f"{pointer('/routes', name)}/{field}", pool), "adapter", message))
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


class SnapshotNotTaken(SnapshotRefused):
    """A slice that a target can run, but for something at the target itself, as a full disk: it may be tried again."""
