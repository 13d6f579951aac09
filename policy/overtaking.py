"""Short work is not held behind long: who may go past a waiting request that needs more room than is free.

A queue's order says whose turn it is. Where that one needs more KV cache than any engine has left, the room stands idle
until enough has ended, and small requests behind it wait for nothing. So those that fit may go first, as long as each
of the ones that they pass has been passed fewer than `most` times and waits for less than its own patience. From then
on room is held for it: nothing behind it may use the room that it will need, until it is served, or leaves.

What goes first by rank, age or share does not overtake: that is the order itself, and policy/ageing.py bounds it. Pure
and deterministic. Source: seed 1, section 5 (head-of-line blocking); backfilling with reservations as batch schedulers
do it (Lifka, "The ANL/IBM SP Scheduling System", 1995).
"""

from __future__ import annotations

from collections.abc import Callable

from policy.fairness import FairQueue, Waiting

# How far behind the one whose turn it is others are looked at: what is further back comes nearer.
LOOK_AHEAD = 16
# `fits(request, held_for)`: whether there is room for a request now, besides what is held for another.
Fits = Callable[[Waiting, Waiting | None], bool]


class Overtaking:
    """Takes requests out of a fair queue as room permits. `most`: how often one that waits may be passed.

    `fits` must leave alone what it holds: where room is in one place, that is all of it; where it is in several (the
    engines of a pool), the place with the most of it is enough, since that can only grow.
    """

    def __init__(self, queue: FairQueue, most: int) -> None:
        self._queue, self._most = queue, most
        # Of those that wait and were passed: how often.
        self._passed: dict[str, int] = {}

    def next(self, now_ms: int, fits: Fits) -> Waiting | None:
        """The request to serve now, charged and out of the queue; None where none may be served."""
        head = self._queue.peek(now_ms)
        if head is None:
            return None
        if fits(head, None):
            self._queue.pop(now_ms)
            self.forget(head.request_id)
            return head
        passed: list[Waiting] = []
        held_for: Waiting | None = None
        for request in self._queue.in_order(now_ms, LOOK_AHEAD):
            if passed and fits(request, held_for):
                self._overtake(passed, request)
                return request
            passed.append(request)
            if held_for is None and self.is_held_for(request, now_ms):
                held_for = request
        return None

    def is_held_for(self, request: Waiting, now_ms: int) -> bool:
        """Whether none may overtake it any more."""
        impatient = request.hold_from_ms is not None and now_ms >= request.hold_from_ms
        return impatient or self._passed.get(request.request_id, 0) >= self._most

    def forget(self, request_id: str) -> None:
        """It waits no more."""
        self._passed.pop(request_id, None)

    def _overtake(self, passed: list[Waiting], request: Waiting) -> None:
        for each in passed:
            self._passed[each.request_id] = self._passed.get(each.request_id, 0) + 1
        self._queue.take_past(passed, request)
        self.forget(request.request_id)
