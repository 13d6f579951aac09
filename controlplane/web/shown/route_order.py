"""The order in which rules are tried, and what changes in it when one moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

STEP = 10
Direction = Literal["up", "down"]


def in_turn(orders: Mapping[str, int]) -> list[str]:
    """The names of rules as gateways try them."""
    return sorted(orders, key=lambda name: (orders[name], name))


def moved(orders: Mapping[str, int], name: str, direction: Direction) -> dict[str, int]:
    """The orders that change when a rule goes before or behind its neighbour; none where it has no neighbour there.

    The two take each other's number. Where numbers are shared, so that this would not do, all are counted anew.
    """
    names = in_turn(orders)
    at = names.index(name)
    other = at - 1 if direction == "up" else at + 1
    if not 0 <= other < len(names):
        return {}
    names[at], names[other] = names[other], names[at]
    swapped = {**orders, name: orders[names[at]], names[at]: orders[name]}
    if not _is_in_turn(names, swapped):
        swapped = {each: STEP * place for place, each in enumerate(names, 1)}
    return {each: order for each, order in swapped.items() if order != orders[each]}


def _is_in_turn(names: list[str], orders: Mapping[str, int]) -> bool:
    return all((orders[one], one) < (orders[next_one], next_one) for one, next_one in pairwise(names))
