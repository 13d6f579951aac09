"""Which pool serves a request: ordered rules, first match wins.

The gateway asks `choose_route` for every request; the control plane's route tester asks `match_route`, which gives the
same answer and says of each rule why it did not match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from policy.adapters import serves
from wire.snapshot import Match, Model, NameSet, Pool, Route

# Of the names that a rule is for; it may be for thousands.
_NAMES_SAID = 5


class RequestFacts(NamedTuple):
    """What a rule may ask about. `max_tokens` is the asked output length, else the model's default."""

    model: str
    tenant: str
    priority_class: str
    prompt_tokens: int
    max_tokens: int


class Tried(NamedTuple):
    """One rule that was looked at. `mismatch` says which condition failed and why; empty for the rule that matched."""

    rule: str
    mismatch: str


class RouteResult(NamedTuple):
    """Where to go: `pools` in the order of preference (the drawn one, then the fallbacks).

    `reason` is `matched`, `rejected` (`message` is the rule's own) or `no_route` (no rule matched). `tried` is filled
    by `match_route` alone.
    """

    reason: str
    rule: str
    pools: tuple[str, ...]
    message: str
    tried: tuple[Tried, ...] = ()


def in_order(routes: Mapping[str, Route]) -> dict[str, Route]:
    """The same rules, sorted by (order, name): the order in which they are tried."""
    return dict(sorted(routes.items(), key=lambda item: (item[1].order, item[0])))


def routes_for(ordered: Mapping[str, Route], name: str, model: Model, pools: Mapping[str, Pool]) -> dict[str, Route]:
    """The rules, in their order, as they hold for requests for the model `name`; see `route_for`."""
    led = ((rule, route_for(route, name, model, pools)) for rule, route in ordered.items())
    return {rule: route for rule, route in led if route is not None}


def route_for(route: Route, name: str, model: Model, pools: Mapping[str, Pool]) -> Route | None:
    """A rule as it holds for requests for the model `name`; None where it is passed over.

    One that names the model leads to its pools whatever they serve: somebody wanted it so. One for any model leads to
    those of its pools that serve the one that is asked for, and is passed over where none does. An adapter is led to
    pools that hold it alone, since engines of others would answer as their base model.
    """
    if route.pools is UNSET or (route.match.models is not UNSET and model.adapter is UNSET):
        return route
    drawn = {pool: weight for pool, weight in route.pools.items() if serves(pools[pool], name, model)}
    if not any(drawn.values()):
        return None
    fallbacks = {pool: each for pool, each in (route.fallbacks or {}).items() if serves(pools[pool], name, model)}
    return msgspec.structs.replace(route, pools=drawn, fallbacks=fallbacks)


def choose_route(ordered: Mapping[str, Route], request: RequestFacts, draw: float) -> RouteResult:
    """Try the rules, which stand as `in_order` gives them. `draw` in [0, 1) picks among the pools by weight."""
    for name, route in ordered.items():
        if not holds(route.match, request):
            continue
        if route.pools is UNSET:
            message = route.reject if route.reject is not UNSET else ""
            return RouteResult("rejected", name, (), message)
        first = pool_by_weight(route.pools, draw)
        return RouteResult("matched", name, (first, *_fallbacks(route, first)), "")
    return RouteResult("no_route", "", (), "")


def match_route(
    routes: Mapping[str, Route], request: RequestFacts, draw: float, led: Mapping[str, Route] | None = None
) -> RouteResult:
    """As `choose_route`, from rules in any order, with every rule that was looked at in `tried`.

    `led`: the rules as `routes_for` gives them for the model; those that it passed over are told of.
    """
    ordered = in_order(routes)
    result = choose_route(ordered if led is None else led, request, draw)
    tried: list[Tried] = []
    for name, route in ordered.items():
        mismatch = why_not(route.match, request)
        if not mismatch and led is not None and name not in led:
            mismatch = f"none of its pools serves model {request.model!r}"
        tried.append(Tried(name, mismatch))
        if name == result.rule:
            break
    return result._replace(tried=tuple(tried))


def holds(match: Match, request: RequestFacts) -> bool:
    """Whether a request meets every condition of a rule."""
    return (
        names_hold(match, request.model, request.tenant, request.priority_class)
        and _in_range(match.min_prompt_tokens, match.max_prompt_tokens, request.prompt_tokens)
        and _in_range(match.min_max_tokens, match.max_max_tokens, request.max_tokens)
    )


def names_hold(match: Match, model: str, tenant: str, priority_class: str) -> bool:
    """Whether a request by these meets a rule's conditions, if its sizes do."""
    return (
        _named(match.models, model) and _named(match.tenants, tenant) and _named(match.priority_classes, priority_class)
    )


def any_size(match: Match) -> bool:
    """Whether a rule takes requests of every size."""
    bounds = (match.min_prompt_tokens, match.max_prompt_tokens, match.min_max_tokens, match.max_max_tokens)
    return all(bound is UNSET for bound in bounds)


def _named(wanted: NameSet | UnsetType, name: str) -> bool:
    return wanted is UNSET or name in wanted


def _in_range(low: int | UnsetType, high: int | UnsetType, value: int) -> bool:
    return (low is UNSET or value >= low) and (high is UNSET or value < high)


def why_not(match: Match, request: RequestFacts) -> str:
    """The first condition that the request fails, in words; empty when all hold."""
    return (
        _not_named("model", match.models, request.model)
        or _not_named("tenant", match.tenants, request.tenant)
        or _not_named("priority class", match.priority_classes, request.priority_class)
        or _out_of_range("prompt_tokens", match.min_prompt_tokens, match.max_prompt_tokens, request.prompt_tokens)
        or _out_of_range("max_tokens", match.min_max_tokens, match.max_max_tokens, request.max_tokens)
    )


def _not_named(what: str, wanted: NameSet | UnsetType, name: str) -> str:
    if wanted is UNSET or name in wanted:
        return ""
    said, more = ", ".join(sorted(wanted)[:_NAMES_SAID]) or "none", len(wanted) - _NAMES_SAID
    return f"{what} {name!r} is not one of {said}" + (f" and {more} more" if more > 0 else "")


def _out_of_range(what: str, low: int | UnsetType, high: int | UnsetType, value: int) -> str:
    if low is not UNSET and value < low:
        return f"{what} {value} is below {low}"
    if high is not UNSET and value >= high:
        return f"{what} {value} is not below {high}"
    return ""


def pool_by_weight(weights: Mapping[str, int], draw: float) -> str:
    """The pool whose share of the weights, laid side by side in name order, holds `draw` in [0, 1).

    Raises: ValueError when no pool has a weight above zero.
    """
    mark = draw * sum(weights.values())
    chosen = ""
    for pool, weight in sorted(weights.items()):
        if weight == 0:
            continue
        chosen = pool
        if mark < weight:
            break
        mark -= weight
    if not chosen:
        raise ValueError("a route needs a pool whose weight is above zero")
    return chosen


def _fallbacks(route: Route, first: str) -> list[str]:
    if route.fallbacks is UNSET:
        return []
    ordered = sorted(route.fallbacks.items(), key=lambda item: (item[1].order, item[0]))
    return [pool for pool, _ in ordered if pool != first]
