"""Whose lines are given out next, where several tenants have some."""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def shared_out(waiting: Mapping[str, int], running: Mapping[str, int], lines: int) -> dict[str, int]:
    """How many of each tenant's `waiting` lines are given out of `lines`: each to who has fewest running by then.

    Nothing is left over while somebody waits. Equals take turns by name.
    """
    given = dict.fromkeys(waiting, 0)
    turns = [(running.get(tenant, 0), tenant) for tenant, count in waiting.items() if count > 0]
    heapq.heapify(turns)
    for _ in range(lines):
        if not turns:
            break
        has, tenant = heapq.heappop(turns)
        given[tenant] += 1
        if given[tenant] < waiting[tenant]:
            heapq.heappush(turns, (has + 1, tenant))
    return given
