"""How many nodes the policy may cordon by itself. Pure.

A fault that many nodes share, such as a driver that fails everywhere, must not empty the fleet: beyond the limit a
person decides (NVSentinel's circuit breaker).
"""

from __future__ import annotations

from typing import NamedTuple


class Room(NamedTuple):
    """`cordoned`: other nodes that the policy cordoned within its window. `allowed`: of `nodes`, so many may be."""

    cordoned: int
    allowed: int
    nodes: int

    @property
    def left(self) -> bool:
        return self.cordoned < self.allowed


def room(*, cordoned: int, nodes: int, max_nodes_permille: int, min_nodes: int) -> Room:
    """The share of the nodes, rounded down, and `min_nodes` at least: a small fleet's share would be none."""
    return Room(cordoned, max(min_nodes, nodes * max_nodes_permille // 1000), nodes)
