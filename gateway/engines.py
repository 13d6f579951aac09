"""The engines behind the gateway: which one takes a request, and what each has promised of its KV cache.

State outlives configuration changes; an engine whose URL changes is another engine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from msgspec import UNSET

from gateway.refusals import Refused
from gateway.view import View
from policy.breaker import Breaker, Outcome, Permit, State, held_override
from policy.kv import admissible_tokens
from wire.snapshot import Engine

Obstacle = Literal["cordoned", "breaker", "kv_never", "kv_now"]


@dataclass(slots=True)
class EngineState:
    """What the gateway knows of one engine beyond its configuration."""

    name: str
    url: str
    breaker: Breaker
    reserved_tokens: int = 0
    in_flight: int = 0
    last_used: int = 0

    def redacted(self, said: str) -> str:
        """What the engine said, its name in place of its address: `netloc`, `host:port`, host alone, in any case."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        addresses = {parts.netloc, f"{host}:{parts.port}", host} - {""}
        longest_first = "|".join(map(re.escape, sorted(addresses, key=len, reverse=True)))
        return re.sub(rf"(?<![\w.-])(?:{longest_first})(?![\w-])", self.name, said, flags=re.IGNORECASE)


class Placement:
    """A request's place on one engine. `end` gives it back and tells the breaker; only the first call counts."""

    __slots__ = ("_ended", "_permit", "_tokens", "engine", "pool", "state")

    def __init__(self, pool: str, engine: Engine, state: EngineState, tokens: int, permit: Permit | None) -> None:
        self.pool, self.engine, self.state = pool, engine, state
        self._tokens, self._permit = tokens, permit
        self._ended = False
        state.reserved_tokens += tokens
        state.in_flight += 1

    def end(self, outcome: Outcome, now_ms: int) -> None:
        if self._ended:
            return
        self._ended = True
        self.state.reserved_tokens -= self._tokens
        self.state.in_flight -= 1
        if self._permit is not None:
            self.state.breaker.record(self._permit, outcome, now_ms)


class Fleet:
    """All engines. `now_ms` is monotonic, `unix_ms` wall time (overrides expire by it)."""

    def __init__(self, capacity_retry_seconds: float) -> None:
        self._states: dict[str, EngineState] = {}
        self._uses = itertools.count(1)
        self._capacity_retry_seconds = capacity_retry_seconds

    def configure(self, view: View) -> None:
        """Take the engines and breaker thresholds of a view."""
        before, self._states = self._states, {}
        for name, engine in view.snapshot.engines.items():
            thresholds = view.snapshot.pools[engine.pool].breaker
            state = before.get(name)
            if state is None or state.url != engine.url:
                state = EngineState(name, engine.url, Breaker(thresholds))
            state.breaker.configure(thresholds)
            self._states[name] = state

    def place(
        self, view: View, pools: Iterable[str], tokens: int, now_ms: int, unix_ms: int, avoid: str | None = None
    ) -> Placement:
        """A place for `tokens` of KV cache in the first pool that has one, on its engine with the least reserved.

        `avoid` names an engine that has just failed this request.
        Raises: Refused (`no_engine`, `breaker_open`, `no_kv_capacity`, `never_fits_kv`), naming the last obstacle.
        """
        obstacles: list[tuple[EngineState, Obstacle]] = []
        for pool in pools:
            best: EngineState | None = None
            for name in view.engines_of[pool]:
                state = self._states.get(name)
                # A request that began under an older view must not pair its engine with another one's state.
                if state is None or state.url != view.snapshot.engines[name].url or name == avoid:
                    continue
                obstacle = self._obstacle(view, pool, state, tokens, now_ms, unix_ms)
                if obstacle is not None:
                    obstacles.append((state, obstacle))
                elif best is None or _load(state) < _load(best):
                    best = state
            if best is not None:
                return self._take(view, pool, best, tokens, now_ms, unix_ms)
        raise self._refusal(obstacles, tokens, now_ms)

    def _take(self, view: View, pool: str, state: EngineState, tokens: int, now_ms: int, unix_ms: int) -> Placement:
        forced = held_override(view.overrides(pool, state.name), unix_ms)
        # A breaker that a person holds closed lets everything through and learns only while it is closed itself.
        permit = state.breaker.permit(now_ms) if forced is None or state.breaker.state(now_ms) == "closed" else None
        state.last_used = next(self._uses)
        return Placement(pool, view.snapshot.engines[state.name], state, tokens, permit)

    def _obstacle(
        self, view: View, pool: str, state: EngineState, tokens: int, now_ms: int, unix_ms: int
    ) -> Obstacle | None:
        engine = view.snapshot.engines[state.name]
        if engine.cordoned:
            return "cordoned"
        admissible: int | None = None
        if engine.kv_capacity_tokens is not UNSET:
            admissible = admissible_tokens(engine.kv_capacity_tokens, view.snapshot.pools[pool].kv_admit_permille)
            if tokens > admissible:
                return "kv_never"
        forced = held_override(view.overrides(pool, state.name), unix_ms)
        if (forced is not None and forced.state == "open") or (forced is None and not state.breaker.may_try(now_ms)):
            return "breaker"
        if admissible is not None and state.reserved_tokens + tokens > admissible:
            return "kv_now"
        return None

    def _refusal(self, obstacles: list[tuple[EngineState, Obstacle]], tokens: int, now_ms: int) -> Refused:
        """Names the obstacle that passes first: KV room, then a breaker; that it never fits only if none will pass."""
        kinds = {obstacle for _, obstacle in obstacles}
        wait = self._capacity_retry_seconds
        if "kv_now" in kinds:
            return Refused(
                "no_kv_capacity",
                f"the request may need {tokens} tokens of KV cache and no engine has as many left to admit now",
                retry_after_seconds=wait,
                numbers={"kv_tokens": tokens},
            )
        if "breaker" in kinds:
            opens = [state.breaker.retry_in_ms(now_ms) / 1000 for state, kind in obstacles if kind == "breaker"]
            return Refused(
                "breaker_open",
                "the circuit breaker of every engine that could serve this is open",
                retry_after_seconds=max(wait, min(opens)),
            )
        if kinds == {"kv_never"}:
            return Refused(
                "never_fits_kv",
                f"the request may need {tokens} tokens of KV cache, more than any engine of its pools may admit",
                param="max_tokens",
                numbers={"kv_tokens": tokens},
            )
        return Refused("no_engine", "no engine of the pool takes work now", retry_after_seconds=wait)

    def states(self, view: View, now_ms: int, unix_ms: int) -> list[tuple[str, EngineState, State]]:
        """For the metrics page: (pool, engine, the breaker state that holds, overrides included)."""
        rows: list[tuple[str, EngineState, State]] = []
        for name, state in self._states.items():
            pool = view.snapshot.engines[name].pool
            forced = held_override(view.overrides(pool, name), unix_ms)
            rows.append((pool, state, state.breaker.state(now_ms) if forced is None else forced.state))
        return rows


def _load(state: EngineState) -> tuple[int, int, int]:
    return state.reserved_tokens, state.in_flight, state.last_used
