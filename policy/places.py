"""How many go before the next request of a tenant in a fair queue, at least: known without looking at all for each.

The queue is looked at a few times a second, at its order now and at the one that ageing will have made by the end of a
wait; who would stand better in one of them stands so. In between the ones that were served are subtracted, and the
ones that came are added to their own tenant's. A tenant of whom nothing is known has none before it. Time is integer
milliseconds. Source: seed 1, section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy.fairness import FairQueue, Waiting

# An order of 2,500 takes some 10 ms to look at.
LOOK_EVERY_MS = 250
_Key = tuple[str, str]


class Places:
    """Of the queue that it is told of: `entered` and `left` for each that comes and goes."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        # (class, tenant) → how many went before its next request, of all that had been served when it was looked at.
        self._before: dict[_Key, int] = {}
        self._served = 0
        self._looked_ms: int | None = None

    def before(self, priority_class: str, tenant: str, now_ms: int, wait_ms: int) -> int:
        """How many are served before a new request of these, which waits for `wait_ms` at most."""
        if self._looked_ms is None or now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._look(now_ms, wait_ms)
        return max(0, self._before.get((priority_class, tenant), 0) - self._served)

    def entered(self, request: Waiting) -> None:
        key = _key(request)
        # Behind its tenant's last one, or behind none.
        self._before[key] = max(self._before.get(key, 0), self._served) + 1

    def left(self, request: Waiting, *, served: bool, was_last: bool = False) -> None:
        """`was_last`: none of its tenant stood behind it, so that its place is the next one's."""
        key = _key(request)
        if served:
            self._served += 1
        elif was_last and key in self._before:
            self._before[key] -= 1
        else:
            # It may have been the last one: others of its tenant come sooner.
            self._before.pop(key, None)

    def _look(self, now_ms: int, wait_ms: int) -> None:
        count = len(self._queue)
        now, then = (_last(self._queue.in_order(at_ms, count)) for at_ms in (now_ms, now_ms + wait_ms))
        self._before = {key: min(place, then[key]) for key, place in now.items()}
        self._served, self._looked_ms = 0, now_ms


def _key(request: Waiting) -> _Key:
    return request.priority_class, request.tenant


def _last(order: Iterable[Waiting]) -> dict[_Key, int]:
    """Of each its last place, counted from 1."""
    return {_key(request): place for place, request in enumerate(order, start=1)}
