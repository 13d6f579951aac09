"""What limits promise of a pool's KV cache: which tenants reach it, and how much context each may hold there.

A promise is a mean, as Little's law gives it: tokens in at a limit's rate, each alive for the pool's mean residence. A
tenant is taken to send all it may by the way that leads most of it to the pool. Source: seed 1, "KV budget" and
sections 6 and 10; J. Little, "A Proof for the Queuing Formula L = λW" (1961).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType

from policy.capacity import tokens_held
from policy.names import models_of
from policy.routing import any_size, in_order, names_hold, route_for
from wire.snapshot import Alias, Match, Model, Pool, Route, ScheduledLimits, TemporaryLimits, Tenant

# residence: a limit per minute and the measured residence. mean_context, longest_context: parallel requests, each as
# long as was measured, or as may be. no_residence: only a limit per minute, and no residence is known. no_limit: none.
Basis = Literal["residence", "mean_context", "longest_context", "no_residence", "no_limit"]


class Means(NamedTuple):
    """Of the requests that a pool served lately; None where it was not measured."""

    residence_seconds: float | None
    context_tokens: float | None


UNMEASURED = Means(None, None)
# Kinds of tenants that are remembered: more than there are, but no more than changes over months may bring.
_KNOWN_MAX = 20_000


class Reach(NamedTuple):
    """How much of a tenant's work can come to a pool first, and the longest context of a sequence that does."""

    permille: int
    context_tokens: int


class Promise(NamedTuple):
    """Tokens of context that a tenant may hold in a pool on average; None where nothing bounds them."""

    tokens: int | None
    basis: Basis


class LargestLimits(NamedTuple):
    """The largest that ever holds of each limit: base, in any hours, or given for a time. None is no limit."""

    tpm_limit: int | None
    rpm_limit: int | None
    max_parallel_requests: int | None


def largest_limits(tenant: Tenant) -> LargestLimits:
    """An upper bound for any hour: what is promised at night is promised."""
    others: list[ScheduledLimits | TemporaryLimits] = list(tenant.schedule.values())
    if tenant.temporary is not UNSET:
        others.append(tenant.temporary)
    return LargestLimits(
        _largest(tenant.tpm_limit, (each.tpm_limit for each in others)),
        _largest(tenant.rpm_limit, (each.rpm_limit for each in others)),
        _largest(tenant.max_parallel_requests, (each.max_parallel_requests for each in others)),
    )


def _largest(base: int | UnsetType, others: Iterable[int | UnsetType]) -> int | None:
    return None if base is UNSET else max([base, *(other for other in others if other is not UNSET)])


def promise(limits: LargestLimits, reach: Reach, means: Means = UNMEASURED) -> Promise:
    """The least of what each limit allows, for the part that comes to the pool; rounded up.

    By rate: tpm_limit ÷ 60 × residence, and rpm_limit ÷ 60 × residence × context. By concurrency:
    max_parallel_requests × context. The context of a request is the measured mean, else the longest that may be.
    """
    context = reach.context_tokens
    basis_at_once: Basis = "longest_context"
    if means.context_tokens is not None and means.context_tokens < context:
        context, basis_at_once = math.ceil(means.context_tokens), "mean_context"
    held: list[tuple[int, Basis]] = []
    if means.residence_seconds is not None:
        if limits.tpm_limit is not None:
            held.append((tokens_held(limits.tpm_limit, means.residence_seconds), "residence"))
        if limits.rpm_limit is not None:
            held.append((tokens_held(limits.rpm_limit * context, means.residence_seconds), "residence"))
    if limits.max_parallel_requests is not None:
        held.append((limits.max_parallel_requests * context, basis_at_once))
    if not held:
        rate_only = limits.tpm_limit is not None or limits.rpm_limit is not None
        return Promise(None, "no_residence" if rate_only else "no_limit")
    tokens, basis = min(held)
    return Promise(-(-tokens * reach.permille // 1000), basis)


class Map:
    """Which pools each tenant reaches, by the routes as they are tried. Tenants alike in all that counts share it."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        models: Mapping[str, Model],
        pools: Mapping[str, Pool],
        priority_classes: Collection[str],
        aliases: Mapping[str, Alias] = MappingProxyType({}),
    ) -> None:
        self._models, self._pools, self._classes, self._aliases = models, pools, priority_classes, aliases
        # Position → route; those that name tenants are looked up by them, as there may be one for each.
        self._for_all: list[tuple[int, Route]] = []
        self._for_some: dict[str, list[tuple[int, Route]]] = {}
        for position, route in enumerate(in_order(routes).values()):
            if route.match.tenants is UNSET:
                self._for_all.append((position, route))
                continue
            for tenant in route.match.tenants:
                self._for_some.setdefault(tenant, []).append((position, route))
        self._known: dict[object, dict[str, Reach]] = {}

    def reached_by(self, name: str, tenant: Tenant) -> dict[str, Reach]:
        """Pool → how it is reached; empty for a blocked tenant. Pools that are fallbacks alone are left out.

        Sizes are not weighed: a tenant may send requests of any, so that every rule for some sizes counts in whole.
        """
        if tenant.blocked:
            return {}
        own = self._for_some.get(name, [])
        alike = (
            tuple(position for position, _ in own),
            models_of(tenant, self._aliases),
            _names(tenant.priority_classes),
            tenant.default_priority_class,
            tenant.max_tokens_cap,
        )
        if (known := self._known.get(alike)) is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[alike] = self._walk(name, tenant, own)
        return known

    def _walk(self, name: str, tenant: Tenant, own: list[tuple[int, Route]]) -> dict[str, Reach]:
        routes = [route for _, route in sorted([*self._for_all, *own], key=lambda each: each[0])]
        found: dict[str, Reach] = {}
        allowed = models_of(tenant, self._aliases)
        for model_name, model in self._models.items():
            if allowed is not None and model_name not in allowed:
                continue
            for priority_class in self._classes_of(tenant):
                for route in routes:
                    if not names_hold(route.match, model_name, name, priority_class):
                        continue
                    led = route_for(route, model_name, model, self._pools)
                    if led is None:
                        continue
                    _add(found, led, _sizes(model, tenant, route.match))
                    if any_size(route.match):
                        break
        return found

    def _classes_of(self, tenant: Tenant) -> set[str]:
        """Those that it may ask for, and what a request has that asks for none ("": no class)."""
        default = "" if tenant.default_priority_class is UNSET else tenant.default_priority_class
        return {default, *(self._classes if tenant.priority_classes is UNSET else tenant.priority_classes)}


def _names(names: Mapping[str, object] | UnsetType) -> frozenset[str] | None:
    return None if names is UNSET else frozenset(names)


class _Sizes(NamedTuple):
    """The largest sizes of a sequence that a rule takes."""

    prompt_tokens: int
    output_tokens: int
    context_tokens: int

    @property
    def longest(self) -> int:
        return min(self.context_tokens, self.prompt_tokens + self.output_tokens)


def _sizes(model: Model, tenant: Tenant, match: Match) -> _Sizes | None:
    """None where no prompt that the model can take meets the rule."""
    prompt, output = model.max_context_tokens - 1, model.max_tokens
    if match.max_prompt_tokens is not UNSET:
        prompt = min(prompt, match.max_prompt_tokens - 1)
    if match.max_max_tokens is not UNSET:
        output = min(output, match.max_max_tokens - 1)
    if tenant.max_tokens_cap is not UNSET:
        output = min(output, tenant.max_tokens_cap)
    shortest = 0 if match.min_prompt_tokens is UNSET else match.min_prompt_tokens
    return _Sizes(prompt, output, model.max_context_tokens) if prompt >= shortest else None


def _add(found: dict[str, Reach], route: Route, sizes: _Sizes | None) -> None:
    if route.pools is UNSET or sizes is None:
        return
    whole = sum(route.pools.values())
    ways = [(pool, Reach(-(-1000 * weight // whole), sizes.longest)) for pool, weight in route.pools.items() if weight]
    if route.cascade is not UNSET:
        if route.cascade.max_prompt_tokens is not UNSET:
            sizes = sizes._replace(prompt_tokens=min(sizes.prompt_tokens, route.cascade.max_prompt_tokens))
        # All is asked there first, and all of it may escalate.
        ways.append((route.cascade.pool, Reach(1000, sizes.longest)))
    for pool, reach in ways:
        before = found.get(pool, reach)
        found[pool] = Reach(*map(max, before, reach))
