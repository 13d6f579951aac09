"""How traffic and engines stand between the two sides of a red-black rollout. Pure.

Both follow one number, the share of the old pool's traffic that goes to the new pool, in per mille: each route that
leads to the old pool is split by it, and as many engines of each side are in service as their part of the traffic
needs. All of it is worked out from what stands now, so that whatever people changed meanwhile stays as they set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.rollouts.observed import EngineFacts
from wire.canonical import Document

WHOLE = 1000
# Of a route that did not lead to the old pool when the rollout began.
NO_ROLE: Document = {"weight": False, "fallback": None, "cascade": False}


@dataclass(frozen=True)
class Pair:
    """The pools of the two sides."""

    old: str
    new: str

    @property
    def names(self) -> tuple[str, str]:
        return (self.old, self.new)


def base_of(route: Document, old: str) -> Document | None:
    """The roles that a pool has in a route, in a form that a row keeps; None where the route does not lead to it."""
    base = {
        "weight": (route["pools"] or {}).get(old, 0) > 0,
        "fallback": (route["fallbacks"] or {}).get(old),
        "cascade": bool(route["cascade"]) and route["cascade"]["pool"] == old,
    }
    return base if base["weight"] or base["fallback"] is not None or base["cascade"] else None


def moved(route: Document, base: Document, pair: Pair, share_permille: int, *, joined: bool) -> Document:
    """The fields of a route with that share of its traffic on the new side; empty where all stand so already.

    Weights are split. A fallback and a cascade's first pool, which cannot be, go with the larger side. `joined`: each
    side takes besides what the other cannot, so that a request which waits for a place outlives the move.
    """
    wanted = {
        "pools": _weights(route["pools"], pair, share_permille),
        "fallbacks": _fallbacks(route["fallbacks"], base, pair, share_permille, joined=joined),
        "cascade": _cascade(route["cascade"], pair, share_permille),
    }
    return {field: value for field, value in wanted.items() if value != route[field]}


def _weights(pools: Mapping[str, int] | None, pair: Pair, share_permille: int) -> dict[str, int] | None:
    """The sum stays as it is: what leaves one side comes to the other."""
    if not pools:
        return None
    total = sum(pools.get(name, 0) for name in pair.names)
    if not total:
        return dict(pools)
    new = (total * share_permille + WHOLE // 2) // WHOLE
    if 0 < share_permille < WHOLE and total > 1:
        # However small, both sides have their part.
        new = min(max(new, 1), total - 1)
    rest = {name: weight for name, weight in pools.items() if name not in pair.names}
    sides = {pair.old: total - new, pair.new: new}
    return {**rest, **{name: weight for name, weight in sides.items() if weight}}


def _fallbacks(
    now: Mapping[str, int] | None, base: Document, pair: Pair, share_permille: int, *, joined: bool
) -> dict[str, int] | None:
    now = now or {}
    wanted = {name: order for name, order in now.items() if name not in pair.names}
    side = _larger(pair, share_permille)
    ours = [now[name] for name in pair.names if name in now]
    if base["fallback"] is not None and ours:
        # Gone altogether, a person took it out.
        wanted[side] = min(ours)
    if joined and base["weight"]:
        last = max(wanted.values(), default=0)
        for name in pair.names:
            if name not in wanted:
                wanted[name] = last + 1
    return wanted or None


def _cascade(cascade: Document | None, pair: Pair, share_permille: int) -> Document | None:
    if cascade is None or cascade["pool"] not in pair.names:
        return cascade
    return {**cascade, "pool": _larger(pair, share_permille)}


def _larger(pair: Pair, share_permille: int) -> str:
    return pair.new if 2 * share_permille >= WHOLE else pair.old


def left_as(route: Document, pair: Pair) -> Document:
    """What a route says of the two pools: compared later, it tells whether somebody else changed that."""
    cascade = route["cascade"]
    return {
        "weights": [(route["pools"] or {}).get(name, 0) for name in pair.names],
        "fallbacks": [(route["fallbacks"] or {}).get(name) for name in pair.names],
        "cascade": cascade["pool"] if cascade and cascade["pool"] in pair.names else None,
    }


def wanted_in_service(old_engines: int, new_engines: int, share_permille: int) -> tuple[int, int]:
    """How many of each side, the old one first: their part of the traffic, rounded up."""
    new = -(-new_engines * share_permille // WHOLE)
    old = -(-old_engines * (WHOLE - share_permille) // WHOLE)
    return old, new


def in_service(engines: Iterable[EngineFacts], wanted: int, holder: str) -> tuple[str, ...]:
    """Which engines of a side are in service: such as can serve first, among these those that do already."""

    def rank(engine: EngineFacts) -> tuple[bool, bool, str]:
        can_serve = engine.takes_work and engine.held_out_by in ("", holder)
        return not can_serve, engine.held_out_by != "", engine.name

    return tuple(engine.name for engine in sorted(engines, key=rank)[:wanted])


def turned(engines: Sequence[EngineFacts], serving: Iterable[str], holder: str) -> tuple[list[str], list[str]]:
    """Who is to be held out, and who put back, so that of these engines only `serving` are in service.

    What something else than `holder` holds out stays so, and who is being ended meanwhile: requests would be cut.
    """
    chosen = set(serving)
    out = [engine.name for engine in engines if engine.name not in chosen and not engine.held_out_by]
    back = [
        engine.name
        for engine in engines
        if engine.name in chosen and engine.held_out_by == holder and not engine.ending_by
    ]
    return out, back
