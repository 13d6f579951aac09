"""Who is served next: a queue that is fair between the tenants of a class, and starves no class that ages.

Between classes turns are taken by rank with ageing (policy/ageing.py). A request brings its class one turn, as
old as the request; within the class the tenant that was served least for its weight takes it (policy/token_counter.py),
and that tenant's oldest request is served. So a tenant with much work delays its own requests, and neither other
tenants nor other classes. Pure and deterministic: time is passed in, and never read. Every call takes O(log n) of the
requests that wait, and as many steps as there are classes; only `in_order` and `take_past` look at all that wait.

Who goes past the one whose turn it is, where that one needs more room than there is: policy/overtaking.py.
Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024; seed 1, sections 5, 6 and 8.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from policy.ageing import rank_after
from policy.token_counter import ClassQueue, Waiting
from wire.snapshot import PriorityClass

__all__ = ["CostWeights", "FairQueue", "Waiting"]


class CostWeights(NamedTuple):
    """What a token of each kind costs. An output token takes a step of its own, so it is the dearer one."""

    prompt: int = 1
    output: int = 2


DEFAULT_COSTS = CostWeights()


class FairQueue:
    """The waiting requests of one pool. `classes` and `weights` as in the snapshot; an unknown tenant's weight is 1.

    A request of a class that is not configured (or of none) waits as one of the worst rank. How many may wait is the
    caller's to say: it asks `gives_way_to` when the queue is full.
    """

    def __init__(
        self,
        classes: Mapping[str, PriorityClass],
        weights: Mapping[str, int],
        costs: CostWeights = DEFAULT_COSTS,
    ) -> None:
        self._costs = costs
        self._queues: dict[str, ClassQueue] = {}
        self._waiting: dict[str, Waiting] = {}
        self._pushed = 0
        self.waiting_tokens = 0
        self.configure(classes, weights)

    def configure(self, classes: Mapping[str, PriorityClass], weights: Mapping[str, int]) -> None:
        """Take new classes and weights: for the next charge on. What waits, and what was served, stays."""
        self._classes, self._weights = classes, weights
        self._best_rank = min((each.rank for each in classes.values()), default=0)
        by_rank = sorted(classes.items(), key=lambda item: (item[1].rank, item[0]))
        self._of_no_class = by_rank[-1][1] if by_rank else PriorityClass(rank=0)
        for queue in self._queues.values():
            queue.forget(weights)

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, request: Waiting, now_ms: int) -> None:
        """Raises: ValueError for an id that waits already."""
        if request.request_id in self._waiting:
            raise ValueError(f"request {request.request_id!r} waits already")
        self._pushed += 1
        self._queue_of(request.priority_class).push(request, (now_ms, self._pushed))
        self._waiting[request.request_id] = request
        self.waiting_tokens += request.tokens

    def peek(self, now_ms: int) -> Waiting | None:
        """What `pop` would give."""
        queue = self._next_queue(now_ms)
        return None if queue is None else queue.next()

    def pop(self, now_ms: int) -> Waiting | None:
        """The request to serve now, its prompt and expected output charged; None only where none waits."""
        queue = self._next_queue(now_ms)
        if queue is None:
            return None
        request = queue.next()
        queue.serve(request, self._charged(request))
        self._forget(request)
        return request

    def serve_at_once(self, request: Waiting) -> None:
        """Charge a request that need not wait, as if it had been pushed and popped: only where none waits."""
        self._queue_of(request.priority_class).serve_at_once(request.tenant, self._charged(request))

    def in_order(self, now_ms: int, most: int) -> Iterator[Waiting]:
        """The first `most` that `pop` would give at this moment, one after another, if nothing came or left."""
        turns = {name: iter(queue.oldest_turns(most)) for name, queue in self._queues.items()}
        requests = {name: queue.in_order(self._charged) for name, queue in self._queues.items()}
        coming = [(*self._turn_key(name, next(of, None), now_ms), name) for name, of in turns.items()]
        heapq.heapify(coming)
        for _ in range(min(most, len(self))):
            name = coming[0][-1]
            yield next(requests[name])
            heapq.heapreplace(coming, (*self._turn_key(name, next(turns[name], None), now_ms), name))

    def take_past(self, passed: Collection[Waiting], request: Waiting) -> None:
        """Serve a request before those that `in_order` gives before it. It is charged, and leaves them their turns."""
        same = sum(each.priority_class == request.priority_class for each in passed)
        self._queues[request.priority_class].serve(request, self._charged(request), same)
        self._forget(request)

    def charge(self, request: Waiting, output_tokens: int) -> None:
        """Count the output that a served request really got instead of the expected one. Once a request."""
        if (queue := self._queues.get(request.priority_class)) is not None:
            queue.charge(request.tenant, self._cost(0, output_tokens - request.output_tokens))

    def remove(self, request_id: str) -> Waiting | None:
        """Take out a request whose client left or whose time is over, uncharged; None where it does not wait."""
        request = self._waiting.get(request_id)
        if request is not None:
            self._queues[request.priority_class].take_out(request)
            self._forget(request)
        return request

    def gives_way_to(self, priority_class: str, tenant: str) -> Waiting | None:
        """Which waiting request to shed for a new one when the queue is full; None: refuse the new one.

        Of the class with the highest `shed_order`, if that is above the new one's: the newest request of the tenant
        that was served most. Else, in its own class, the newest of the tenant that has most waiting for its weight, if
        the new one's would have fewer: places in a full queue would else go to whoever asks most often, and with them
        the service. Source: longest queue drop (Suter et al., IEEE JSAC 17(6), 1999).
        """
        candidates = [
            (described.shed_order, described.rank, name)
            for name, queue in self._queues.items()
            if queue.oldest_turn() is not None
            and (described := self._described(name)).shed_order > self._described(priority_class).shed_order
        ]
        if candidates:
            return self._queues[max(candidates)[2]].last()
        own = self._queues.get(priority_class)
        return None if own is None else own.crowding(tenant)

    def _queue_of(self, priority_class: str) -> ClassQueue:
        queue = self._queues.get(priority_class)
        if queue is None:
            queue = self._queues[priority_class] = ClassQueue(self._weight_of)
        return queue

    def _next_queue(self, now_ms: int) -> ClassQueue | None:
        found = [
            (*self._turn_key(name, turn, now_ms), name)
            for name, queue in self._queues.items()
            if (turn := queue.oldest_turn()) is not None
        ]
        return self._queues[min(found)[-1]] if found else None

    def _turn_key(self, name: str, turn: tuple[int, int] | None, now_ms: int) -> tuple[float, tuple[int, int]]:
        """The order between turns of classes: by rank with ageing, then by age. No turn comes last."""
        if turn is None:
            return math.inf, (0, 0)
        return rank_after(self._described(name), now_ms - turn[0], self._best_rank), turn

    def _described(self, priority_class: str) -> PriorityClass:
        return self._classes.get(priority_class, self._of_no_class)

    def _weight_of(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def _cost(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens * self._costs.prompt + output_tokens * self._costs.output

    def _charged(self, request: Waiting) -> int:
        # At least 1, so that every turn counts.
        return max(1, self._cost(request.prompt_tokens, request.output_tokens))

    def _forget(self, request: Waiting) -> None:
        del self._waiting[request.request_id]
        self.waiting_tokens -= request.tokens
