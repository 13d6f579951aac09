"""Which engine of a pool takes a request, or what keeps all of them from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from gateway.pools.breakers import NamedBreaker
from gateway.pools.claim import Claim
from gateway.pools.engine_state import EngineState
from policy.affinity import PrefixTable
from policy.ceilings import NO_CEILING, Ceiling, ceilings
from policy.kv_ledger import EngineLook, KvRoom, room_tokens
from wire.snapshot import Pool, PriorityClass

# `queue`: others that wait go first.
Obstacle = Literal["cordoned", "breaker", "kv_never", "kv_now", "stale", "concurrency", "queue"]
# Those that pass by themselves, so that waiting is of use.
PASSING: frozenset[Obstacle] = frozenset({"kv_now", "stale", "concurrency", "queue"})
# An engine whose KV capacity nobody knows is compared with others as if it held so many tokens: a model of 8B
# parameters on a GPU of 24 GB has about as many.
_NOMINAL_TOKENS = 60_000


class Looks(Protocol):
    """What engines' own pages say, and whether that is too old to be true."""

    def look(self, engine: str) -> EngineLook | None: ...

    def stale(self, engine: str) -> bool: ...


class Chosen(NamedTuple):
    """`load_permille`: of its admissible KV cache, what is reserved and what others hold. `room_tokens`: None: any."""

    state: EngineState
    load_permille: float
    room_tokens: int | None


class Survey(NamedTuple):
    """The engines of a pool at one moment: those that take work, with their room, and what keeps it from the others."""

    taking: list[tuple[EngineState, KvRoom]]
    obstacles: frozenset[Obstacle]


class Choice:
    """The engines of one pool. `spread_permille`: how much more load than the least an engine may have and still be
    preferred for having read the beginning of the prompt; `prefix_blocks`: how many of those are remembered.
    """

    def __init__(self, pool: Pool, breaker: NamedBreaker, looks: Looks, spread_permille: int, blocks: int) -> None:
        self.pool, self.breaker = pool, breaker
        self.engines: tuple[EngineState, ...] = ()
        self.ceilings: dict[str, Ceiling] = {}
        self._looks, self._spread_permille = looks, spread_permille
        self._gateways = 1
        self._uses = itertools.count(1)
        self.prefixes = PrefixTable(blocks)

    def configure(
        self, pool: Pool, engines: Iterable[EngineState], classes: Mapping[str, PriorityClass], gateways: int
    ) -> None:
        self.pool, self.engines, self._gateways = pool, tuple(engines), gateways
        self.ceilings = ceilings(classes, (state.engine for state in self.engines))

    def survey(self, now_ms: int, unix_ms: int, avoid: str = "") -> Survey:
        """As of now, without the engine `avoid`. It holds until something is taken or given back."""
        taking: list[tuple[EngineState, KvRoom]] = []
        obstacles: set[Obstacle] = set()
        for state in self.engines:
            if state.name == avoid:
                continue
            obstacle = self.obstacle(state, now_ms, unix_ms)
            if obstacle is not None:
                obstacles.add(obstacle)
            else:
                taking.append((state, self.room(state)))
        return Survey(taking, frozenset(obstacles))

    def choose(self, survey: Survey, claim: Claim, held_for: Claim | None = None) -> Chosen | set[Obstacle]:
        """The engine for a claim: the least loaded, or the one that knows its leading text; else all obstacles.

        Room is held for `held_for` on the engine that has most of it: nothing else goes there, but what has a higher
        ceiling. None is held for what would not fit an empty engine now.
        """
        obstacles = set(survey.obstacles)
        kept = None
        if held_for is not None and self._ceiling_permille(held_for) >= self._ceiling_permille(claim):
            kept = _most_room(survey.taking, held_for.tokens, self.ceilings.get(held_for.priority_class))
        ceiling = self.ceilings.get(claim.priority_class)
        fitting: list[Chosen] = []
        for state, room in survey.taking:
            short = _too_little(room if ceiling is None else ceiling.under(room), claim.tokens)
            if short is not None:
                obstacles.add(short)
            elif state is kept:
                obstacles.add("kv_now")
            else:
                fitting.append(Chosen(state, _load_permille(state, room), room.tokens))
        return self._best(fitting, claim.blocks) if fitting else obstacles

    def _ceiling_permille(self, claim: Claim) -> int:
        ceiling = self.ceilings.get(claim.priority_class)
        return NO_CEILING if ceiling is None else ceiling.permille

    def used(self, claim: Claim, state: EngineState) -> None:
        """A claim goes to an engine."""
        state.last_used = next(self._uses)
        if claim.blocks:
            self.prefixes.put(claim.blocks, state.name)

    def obstacle(self, state: EngineState, now_ms: int, unix_ms: int) -> Obstacle | None:
        """What keeps everything from an engine, however small."""
        if state.engine.cordoned:
            return "cordoned"
        forced = state.forced(unix_ms)
        if forced is None:
            closed = self.breaker.may_try(now_ms) and state.breaker.may_try(now_ms)
        else:
            closed = forced.state == "closed"
        return None if closed else "breaker"

    def room(self, state: EngineState) -> KvRoom:
        name = state.name
        return room_tokens(
            self.pool,
            state.engine,
            state.reserved_tokens,
            self._looks.look(name),
            stale=self._looks.stale(name),
            gateways=self._gateways,
        )

    def waiting(self) -> int | None:
        """Sequences in the engines' own queues; None where none of them tells."""
        queues = self.queues()
        return None if queues is None else queues[1]

    def queues(self) -> tuple[int, int] | None:
        """Sequences that the engines run, and that wait there, by the last looks at their pages; None: none tells."""
        looks = [self._looks.look(state.name) for state in self.engines if not self._looks.stale(state.name)]
        told = [(look.running, look.waiting) for look in looks if look is not None and look.waiting is not None]
        return (sum(running or 0 for running, _ in told), sum(waiting for _, waiting in told)) if told else None

    def largest_tokens(self, now_ms: int, unix_ms: int) -> int | None:
        """The largest request that some engine may take now or later; None: of any size. -1: no engine takes any."""
        largest = -1
        for state in self.engines:
            if self.obstacle(state, now_ms, unix_ms) is None:
                admissible = self.room(state).admissible_tokens
                if admissible is None:
                    return None
                largest = max(largest, admissible)
        return largest

    def may_ever_take(self, claim: Claim, largest_tokens: int) -> bool:
        """Whether a claim can come to fit, where some engine takes so much."""
        ceiling = self.ceilings.get(claim.priority_class)
        return claim.tokens <= (largest_tokens if ceiling is None else ceiling.largest_ever(largest_tokens))

    def retry_in_ms(self, now_ms: int) -> int:
        """When the first breaker that is open lets probes through; 0 where none is open."""
        breakers = (self.breaker, *(state.breaker for state in self.engines))
        return min((wait for each in breakers if (wait := each.retry_in_ms(now_ms))), default=0)

    def _best(self, fitting: Sequence[Chosen], blocks: list[int]) -> Chosen:
        ready = [each for each in fitting if not each.state.warming] or fitting
        least = min(ready, key=lambda each: (each.load_permille, each.state.in_flight, each.state.last_used))
        known = self.prefixes.find(blocks) if blocks else None
        if known is None or known == least.state.name:
            return least
        limit = least.load_permille + self._spread_permille
        return next((each for each in ready if each.state.name == known and each.load_permille <= limit), least)


def _too_little(room: KvRoom, tokens: int) -> Obstacle | None:
    if room.admissible_tokens is not None and tokens > room.admissible_tokens:
        return "kv_never"
    if room.closed:
        return "stale"
    return "kv_now" if room.tokens is not None and tokens > room.tokens else None


def _most_room(found: Iterable[tuple[EngineState, KvRoom]], tokens: int, ceiling: Ceiling | None) -> EngineState | None:
    """Of the engines that can hold so many tokens once they are empty, the one with most room."""
    able = [
        (room.tokens, state)
        for state, room in found
        if room.tokens is not None
        and room.admissible_tokens is not None
        and tokens <= (room.admissible_tokens if ceiling is None else ceiling.largest_now(room.admissible_tokens))
    ]
    return max(able, key=lambda each: each[0])[1] if able else None


def _load_permille(state: EngineState, room: KvRoom) -> float:
    capacity = room.admissible_tokens or _NOMINAL_TOKENS
    return (state.reserved_tokens + room.others_tokens) * 1000 / capacity
