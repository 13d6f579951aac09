"""How full a class of requests may make a pool, so that there is room left for better ones when they come.

A class with a ceiling is admitted to an engine only while, with it, no more than that share of the engine's admissible
KV cache is taken, whoever holds it (trunk reservation: A. Girard, "Routing and Dimensioning in Circuit-Switched
Networks", 1990). What is left is kept for classes with a higher ceiling, or none.

Where engines of the pool take no work, the room that was kept stays what it was in tokens: the lower classes bear the
loss. Of T tokens with S in service, a ceiling of c ‰ leaves T × (1000 - c) ‰ to others; now it is what remains of S.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET

from policy.kv_ledger import KvRoom
from wire.snapshot import Engine, PriorityClass

NO_CEILING = 1000


class Ceiling(NamedTuple):
    """In per mille of an engine's admissible tokens: as the class has it, and as it holds in the pool now."""

    configured_permille: int
    permille: int

    def under(self, room: KvRoom) -> KvRoom:
        """The room that a request of the class has. What is too large for the configured ceiling can never fit."""
        if room.tokens is None or room.admissible_tokens is None:
            return room
        kept = room.admissible_tokens * (NO_CEILING - self.permille) // NO_CEILING
        return room._replace(
            tokens=max(0, room.tokens - kept), admissible_tokens=self.largest_ever(room.admissible_tokens)
        )

    def largest_ever(self, admissible_tokens: int) -> int:
        """What a request of the class may be at most to fit an engine at some time, be it when all of the pool serves
        again."""
        return admissible_tokens * self.configured_permille // NO_CEILING

    def largest_now(self, admissible_tokens: int) -> int:
        """What fits an empty engine now."""
        return admissible_tokens - admissible_tokens * (NO_CEILING - self.permille) // NO_CEILING


def ceilings(classes: Mapping[str, PriorityClass], engines: Iterable[Engine]) -> dict[str, Ceiling]:
    """The ceilings of the classes that have one, in the pool of these engines, cordoned ones among them."""
    limited = {name: each for name, each in classes.items() if each.kv_ceiling_permille < NO_CEILING}
    if not limited:
        return {}
    total, serving = _tokens(list(engines))
    return {
        name: Ceiling(each.kv_ceiling_permille, _lowered(each.kv_ceiling_permille, total, serving))
        for name, each in limited.items()
    }


def _lowered(configured_permille: int, total: int, serving: int) -> int:
    if not serving:
        return configured_permille
    kept = total * (NO_CEILING - configured_permille)
    return max(0, NO_CEILING - -(-kept // serving))


def _tokens(engines: list[Engine]) -> tuple[int, int]:
    """What all engines hold, and what those do that take work. One that nobody has measured counts as the mean."""
    known = [each.kv_capacity_tokens for each in engines if each.kv_capacity_tokens is not UNSET]
    mean = sum(known) // len(known) if any(known) else 1
    held = [(mean if each.kv_capacity_tokens is UNSET else each.kv_capacity_tokens, each.cordoned) for each in engines]
    return sum(tokens for tokens, _ in held), sum(tokens for tokens, cordoned in held if not cordoned)
