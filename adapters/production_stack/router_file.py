"""What production-stack's router can be told of a slice: its dynamic configuration file, and what it cannot hold.

The file is one JSON object with the fields of the router's own dataclass, all lists being texts with commas. Source:
vllm-project/production-stack, src/vllm_router/dynamic_config.py, of which these are used here::

    class DynamicRouterConfig:
        service_discovery: str
        routing_logic: str
        static_backends: Optional[str] = None
        static_models: Optional[str] = None
        static_aliases: Optional[str] = None
        static_model_types: Optional[str] = None
        static_backend_health_checks: Optional[bool] = False
        session_key: Optional[str] = None

A field that it does not know, an address that it does not take or lists of other lengths, and it keeps what it had.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from policy.breaker import held_override
from wire.problems import Problem, pointer
from wire.snapshot import Engine, GatewaySnapshot, Match, Pool
from wire.snapshot_checks import SnapshotRefused

# The router's `validate_url` knows names with a dot and a last part of letters, localhost, and IPv4.
_ADDRESS = re.compile(r"https?://(([A-Za-z0-9_-]+\.)+[A-Za-z]{2,}|localhost|[0-9]{1,3}(\.[0-9]{1,3}){3})(:[0-9]+)?")
# What the router asks a backend for when it checks its health.
_MODEL_TYPES = {"short": "chat", "long": "chat", "batch": "chat", "embedding": "embeddings", "rerank": "rerank"}


@dataclass(frozen=True)
class Choices:
    """What the slice does not say: how the router chooses among the backends of a model."""

    routing_logic: str
    session_key: str
    health_checks: bool


@dataclass(frozen=True)
class RouterFile:
    """`content` for the router. `left_out`: engines and aliases that it cannot hold. `not_enforced`: whole parts of the
    slice that it knows nothing of. `changes_at_ms` (Unix time): when an override ends, None where none does."""

    content: bytes
    left_out: tuple[Problem, ...]
    not_enforced: tuple[str, ...]
    changes_at_ms: int | None


def router_file(snapshot: GatewaySnapshot, choices: Choices, unix_ms: int) -> RouterFile:
    """The file as it shall stand at `unix_ms`. Raises SnapshotRefused where no backend is left.

    The router takes no empty list: it would log an error and go on with the backends that it had.
    """
    left_out: list[Problem] = []
    backends = _Backends(snapshot, unix_ms, left_out)
    if not backends.engines:
        message = "no engine is left for the router, which takes no empty list and goes on with those it had: stop it, "
        raise SnapshotRefused([Problem("/engines", "no_backend", message + "or uncordon or add an engine"), *left_out])
    aliases = backends.aliases(left_out)
    fields: dict[str, str | bool] = {
        "service_discovery": "static",
        "routing_logic": choices.routing_logic,
        "static_backends": ",".join(engine.url for engine, _ in backends.engines),
        "static_models": ",".join(engine.served_model for engine, _ in backends.engines),
        "static_model_types": ",".join(_MODEL_TYPES[pool.work] for _, pool in backends.engines),
        "static_backend_health_checks": choices.health_checks,
    }
    if aliases:
        fields["static_aliases"] = ",".join(f"{alias}:{model}" for alias, model in sorted(aliases.items()))
    if choices.routing_logic == "session":
        fields["session_key"] = choices.session_key
    ends = [row.expires_at_ms for row in snapshot.overrides.values() if row.expires_at_ms > unix_ms]
    content = msgspec.json.format(msgspec.json.encode(fields, order="sorted"), indent=2) + b"\n"
    return RouterFile(content, tuple(left_out), not_enforced(snapshot), min(ends, default=None))


class _Backends:
    """Engines that take work and that the router can address, and the name by which each model is called there.

    The router passes a request on with the model's name as it came, or as its alias says. So a model has one name at
    all its backends, and a name stands for one model.
    """

    def __init__(self, snapshot: GatewaySnapshot, unix_ms: int, left_out: list[Problem]) -> None:
        self._snapshot = snapshot
        self.engines: list[tuple[Engine, Pool]] = []
        self.name_of: dict[str, str] = {}
        of_model: dict[str, list[tuple[str, Engine, Pool]]] = {}
        for name, engine in sorted(snapshot.engines.items()):
            pool = snapshot.pools[engine.pool]
            if engine.cordoned or _is_forced_open(snapshot, name, engine, unix_ms):
                continue
            if message := _unfit(engine):
                left_out.append(Problem(pointer("/engines", name), "router", message))
                continue
            of_model.setdefault(pool.model, []).append((name, engine, pool))
        for model, candidates in sorted(of_model.items()):
            self._take(model, candidates, left_out)

    def _take(self, model: str, candidates: list[tuple[str, Engine, Pool]], left_out: list[Problem]) -> None:
        served = {engine.served_model for _, engine, _ in candidates}
        chosen = model if model in served else min(served)
        owner = self._owner(chosen, model)
        for name, engine, pool in candidates:
            if owner is not None:
                message = f"{engine.served_model!r} stands for model {owner!r} at the router: serve it by another name"
            elif engine.served_model != chosen:
                message = f"the router calls a model by one name, and {model!r} by {chosen!r}: serve it by that name"
            else:
                self.engines.append((engine, pool))
                self.name_of[model] = chosen
                continue
            left_out.append(Problem(pointer("/engines", name), "router", message))

    def _owner(self, name: str, model: str) -> str | None:
        """The model other than `model` that the name stands for already, for clients or at backends; or None."""
        if name == model:
            return None
        if name in self._snapshot.models:
            return name
        if (alias := self._snapshot.aliases.get(name)) is not None and alias.model != model:
            return alias.model
        return next((other for other, taken in self.name_of.items() if taken == name), None)

    def aliases(self, left_out: list[Problem]) -> dict[str, str]:
        """Names for clients → the name at the backends: of aliases, and of models whose engines call them otherwise."""
        wanted = {model: model for model, name in self.name_of.items() if name != model}
        wanted |= {alias: row.model for alias, row in self._snapshot.aliases.items() if row.model in self.name_of}
        found = {}
        for alias, model in wanted.items():
            name = self.name_of[model]
            if alias == name:
                continue
            if ":" in alias or ":" in name:
                place = pointer("/aliases" if alias in self._snapshot.aliases else "/models", alias)
                message = f"the router's form of aliases has no room for a ':' ({alias!r} for {name!r})"
                left_out.append(Problem(place, "router", message))
            else:
                found[alias] = name
        return found


def _is_forced_open(snapshot: GatewaySnapshot, name: str, engine: Engine, unix_ms: int) -> bool:
    subjects = {("engine", name), ("pool", engine.pool)}
    rows = [row for row in snapshot.overrides.values() if (row.subject_kind, row.subject) in subjects]
    held = held_override(rows, unix_ms)
    return held is not None and held.state == "open"


def _unfit(engine: Engine) -> str | None:
    if not _ADDRESS.fullmatch(engine.url):
        return "the router takes a full domain name, localhost or an IPv4 address as host: give it such a URL"
    if "," in engine.served_model or not engine.served_model.strip():
        return "the router's lists have no room for a served_model that is empty or has a comma"
    return None


def not_enforced(snapshot: GatewaySnapshot) -> tuple[str, ...]:
    """Parts of the slice that hold at a Headworks gateway, and that the router does not know of, in words."""
    routed = any(route.reject is not UNSET or route.match != Match() for route in snapshot.routes.values())
    parts = {
        "tenant keys: the router lets everybody in": bool(snapshot.keys),
        "tenants' limits, budgets and models": bool(snapshot.tenants),
        "tenants' pins: everybody gets what an alias stands for": any(t.pins for t in snapshot.tenants.values()),
        "models that are adapters": any(model.adapter is not UNSET for model in snapshot.models.values()),
        "priority classes": bool(snapshot.priority_classes),
        "session limits": bool(snapshot.session_limits),
        "cache policies": bool(snapshot.cache_policies),
        "conditions and refusals of routes, sizes included": routed,
        "weights, fallbacks and cascades of routes: a model's backends are all alike": bool(snapshot.routes),
        "admission by KV cache, queues and automatic breakers of pools": bool(snapshot.pools),
        "API keys of engines": any(engine.api_key is not UNSET for engine in snapshot.engines.values()),
    }
    return tuple(part for part, is_used in parts.items() if is_used)
