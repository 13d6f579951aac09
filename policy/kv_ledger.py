"""How much of an engine's KV cache may be reserved now: its capacity, less what is reserved, less what others hold.

A gateway knows its own reservations, which are the worst case of its own requests. Of everybody else's (other
gateways, direct clients) it knows only what the engine's page shows: tokens in use, and how many sequences there are.
So of `used` tokens that a look showed, others hold between used - own reservations (ours filled to the last token) and
used (ours empty yet); in between they are taken to hold their share by sequences:

    others = max(used - own reserved, used × (sequences - own sequences) ÷ sequences), 0 without foreign sequences

Both ends are exact: with nothing of ours there it is all of `used`, with ours alone it is 0. So neither a page that
shows too much, nor our own requests counted as foreign, can block longer than sequences run: an engine that runs
nothing has room. What others hold may still grow; that is what `kv_admit_permille` leaves room for.

A look is up to a second old, and all gateways see the same room in it. Of several gateways each takes one request of
any size by one look, and beyond that no more than its part of the room. Evictable blocks of the prefix cache are not in
use: engines count them as free. Source: seed 1, sections 1 and 22.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from policy.kv import admissible_tokens
from wire.snapshot import Engine, Pool


class EngineLook(NamedTuple):
    """What an engine's metrics page said at `at_ms` (monotonic); None: it does not say.

    `running`, `waiting`: sequences, everybody's. `own_reserved_tokens`, `own_sequences`: what this gateway had at the
    engine while the page was read.
    """

    at_ms: int
    running: int | None
    waiting: int | None
    kv_used_tokens: int | None
    kv_capacity_tokens: int | None
    own_reserved_tokens: int
    own_sequences: int


class KvRoom(NamedTuple):
    """What may be reserved. None: the capacity is not known, and nothing bounds it.

    `tokens`: now, on top of what is reserved. `admissible_tokens`: all together; a request of more can never fit.
    `others_tokens`: what others are taken to hold. `closed`: nothing is admitted, since nobody knows what is held.
    """

    tokens: int | None
    admissible_tokens: int | None
    others_tokens: int = 0
    closed: bool = False


def room_tokens(
    pool: Pool, engine: Engine, reserved_tokens: int, look: EngineLook | None, *, stale: bool, gateways: int = 1
) -> KvRoom:
    """The room for reservations of this gateway, which holds `reserved_tokens` of them at the engine.

    `look`: the last one, None before the first. `stale`: it is too old to be true, and the pool says what holds then
    (`stale_telemetry`): `close` admits nothing, `hold` goes by the last look, `open` by the capacity alone. An engine
    whose page never tells of its KV cache is not stale. `gateways`: how many share the engine, this one included.
    """
    # An engine that tells of no token has not measured yet.
    told = (look.kv_capacity_tokens or None) if look is not None else None
    configured = None if engine.kv_capacity_tokens is UNSET else engine.kv_capacity_tokens
    opened = stale and pool.stale_telemetry == "open"
    # An engine's own number goes before one that was configured, unless it may have changed since.
    capacity = (told if configured is None else configured) if opened else (configured if told is None else told)
    admissible = None if capacity is None else admissible_tokens(capacity, pool.kv_admit_permille)
    if stale and pool.stale_telemetry == "close":
        return KvRoom(0, admissible, closed=True)
    if admissible is None:
        return KvRoom(None, None)
    if look is None or opened:
        return KvRoom(max(0, admissible - reserved_tokens), admissible)
    others = others_tokens(look)
    free = admissible - reserved_tokens - others
    since_look = reserved_tokens - look.own_reserved_tokens
    if gateways > 1 and since_look > 0:
        free = min(free, (admissible - look.own_reserved_tokens - others) // gateways - since_look)
    return KvRoom(max(0, free), admissible, others)


def others_tokens(look: EngineLook) -> int:
    """Tokens that others are taken to hold, by the model above; 0 where the page does not say."""
    used = look.kv_used_tokens
    if used is None:
        return 0
    unreserved = max(0, used - look.own_reserved_tokens)
    if look.running is None:
        return unreserved
    sequences = look.running + (look.waiting or 0)
    foreign = sequences - look.own_sequences
    return max(unreserved, used * foreign // sequences) if foreign > 0 else 0
