"""What the gateway knows of one engine beyond its configuration."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.pools.breakers import NamedBreaker
from policy.breaker import State, held_override
from wire.snapshot import Engine, Override

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.pools.pool import PoolState


@dataclass(slots=True, eq=False)
class EngineState:
    """One engine, by its present configuration, and what requests hold of it.

    `reserved_tokens`, `sequences`, `in_flight`: KV cache, sequences and requests of this gateway at it.
    """

    name: str
    engine: Engine
    breaker: NamedBreaker
    # On the engine itself and on its pool, expired ones included.
    overrides: tuple[Override, ...] = ()
    # The pool that it is of now.
    pool: PoolState | None = None
    reserved_tokens: int = 0
    sequences: int = 0
    in_flight: int = 0
    last_used: int = 0
    # Attempts that it may not have begun to answer (gateway/relay.py).
    attempts: dict[asyncio.Timeout, Exchange] = field(default_factory=dict)
    # It compiles again what it knew before its start (gateway/schema_warm_up.py): others are preferred.
    warming: bool = False

    def forced(self, unix_ms: int) -> Override | None:
        """The override that holds now."""
        return held_override(self.overrides, unix_ms) if self.overrides else None

    def standing(self, now_ms: int, unix_ms: int) -> State:
        """The breaker state that holds, overrides included."""
        forced = self.forced(unix_ms)
        return self.breaker.state(now_ms) if forced is None else forced.state

    def give_up_unanswered(self) -> None:
        """End the attempts of which nothing has been heard; each goes on as where an engine cannot be reached."""
        now = asyncio.get_running_loop().time()
        for attempt, x in self.attempts.items():
            if not x.begun:
                attempt.reschedule(now)

    def redacted(self, said: str) -> str:
        """What the engine said, its name in place of its address: `netloc`, `host:port`, host alone, in any case."""
        parts = urlsplit(self.engine.url)
        host = parts.hostname or ""
        addresses = {parts.netloc, f"{host}:{parts.port}", host} - {""}
        longest_first = "|".join(map(re.escape, sorted(addresses, key=len, reverse=True)))
        return re.sub(rf"(?<![\w.-])(?:{longest_first})(?![\w-])", self.name, said, flags=re.IGNORECASE)
