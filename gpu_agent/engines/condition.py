"""In what condition an engine is, from what a look shows of it, and what is to be told when that changes. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wire.messages import Condition

Down = Literal["dead", "unreachable"]
ConditionEvent = Literal["engine_down", "engine_hung", "engine_paused", "engine_sleeping", "engine_up"]
# The event that begins each condition. `engine_up` ends them all.
BEGINNINGS: dict[Condition, ConditionEvent] = {
    "dead": "engine_down",
    "unreachable": "engine_down",
    "hung": "engine_hung",
    "paused": "engine_paused",
    "sleeping": "engine_sleeping",
}


class Signs(NamedTuple):
    """What one look shows. `down`: None for an engine that answers its health page. The rest: None cannot be told."""

    down: Down | None = None
    sleeping: bool | None = None
    paused: bool | None = None
    hung: bool | None = None


def condition_of(before: Condition | None, signs: Signs) -> Condition:
    """What the engine is in. Who sleeps is paused, and who is paused stands still: the cause counts.

    What a look cannot tell is as it was `before`, the last look; None: there was none.
    """
    if signs.down is not None:
        return signs.down
    shown: tuple[tuple[Condition, bool | None], ...] = (
        ("sleeping", signs.sleeping),
        ("paused", signs.paused),
        ("hung", signs.hung),
    )
    return next((name for name, holds in shown if holds or (holds is None and before == name)), "ok")


def condition_events(before: Condition | None, after: Condition) -> list[ConditionEvent]:
    """What to tell, in order. An engine that goes down keeps what it had, so that one end is told of both."""
    was, now = BEGINNINGS.get(before or "ok"), BEGINNINGS.get(after)
    if was == now:
        return []
    told: list[ConditionEvent] = []
    if was is not None and now != "engine_down":
        told.append("engine_up")
    if now is not None:
        told.append(now)
    return told
