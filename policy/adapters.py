"""Models that are LoRA adapters of another: which pools may serve them, and by which name engines are asked for them.

An engine with adapters answers for its base model by the one name and for each adapter by the adapter's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from wire.snapshot import Engine, Model, Pool, Route


def serves(pool: Pool, name: str, model: Model) -> bool:
    """Whether the pool is of the model `name`, or holds the adapter that it is."""
    return pool.model == name or (model.adapter is not UNSET and model.adapter in pool.adapters)


def asked_as(model: Model, pool: Pool, engine: Engine) -> str:
    """The name by which an engine of the pool is asked for the model."""
    return model.adapter if model.adapter is not UNSET and model.adapter in pool.adapters else engine.served_model


def routes_for(routes: Mapping[str, Route], model: Model, pools: Mapping[str, Pool]) -> dict[str, Route]:
    """The rules, in their order, as they hold for requests for this model.

    One that is an adapter is led to pools that hold it alone, since the engines of others would answer as their base
    model; a rule that draws among none of these is passed over.
    """
    if model.adapter is UNSET:
        return dict(routes)
    adapter = model.adapter
    found = {}
    for name, route in routes.items():
        if route.pools is UNSET:
            found[name] = route
            continue
        drawn = {pool: weight for pool, weight in route.pools.items() if adapter in pools[pool].adapters}
        if any(drawn.values()):
            fallbacks = {
                pool: each for pool, each in (route.fallbacks or {}).items() if adapter in pools[pool].adapters
            }
            found[name] = msgspec.structs.replace(route, pools=drawn, fallbacks=fallbacks)
    return found
