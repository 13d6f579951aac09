"""Everything between a request's quota and its engine: the queue of each pool, KV room, breakers, choice of an engine.

`Pools` is the door: `place` waits for a place, `place_again` looks for another engine, a `Placement` is what is held.
"""

from __future__ import annotations

from gateway.pools.engine_state import EngineState
from gateway.pools.placement import Placement
from gateway.pools.pool import PoolOptions
from gateway.pools.pools import PoolMoment, Pools, judge_pool

__all__ = ["EngineState", "Placement", "PoolMoment", "PoolOptions", "Pools", "judge_pool"]
