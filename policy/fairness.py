"""Who is served next: a queue that is fair between the tenants of a class, and starves no class that ages.

Between classes turns are taken by rank with ageing (policy/ageing.py). A request brings its class one turn, as
old as the request; within the class the tenant that was served least for its weight takes it (policy/token_counter.py),
and that tenant's oldest request is served. So a tenant with much work delays its own requests, and neither other
tenants nor other classes. Pure and deterministic: time is passed in, and never read. Every call takes O(log n) of the
requests that wait, and as many steps as there are classes.

Long requests that hold up short ones are no matter of this queue: routes send them to pools of their own by size.
Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024; seed 1, sections 5, 6 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        queue = self._queues.get(request.priority_class)
        if queue is None:
            queue = self._queues[request.priority_class] = ClassQueue(self._weight_of)
        self._pushed += 1
        queue.push(request, (now_ms, self._pushed))
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
        # At least 1, so that every turn counts.
        queue.serve(request, max(1, self._cost(request.prompt_tokens, request.output_tokens)))
        self._forget(request)
        return request

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

    def gives_way_to(self, priority_class: str) -> Waiting | None:
        """Which waiting request to shed for a new one of this class when the queue is full; None: refuse the new one.

        Of the class with the highest `shed_order`, if that is above the new one's: the newest request of the tenant
        that was served most.
        """
        candidates = [
            (described.shed_order, described.rank, name)
            for name, queue in self._queues.items()
            if queue.oldest_turn() is not None
            and (described := self._described(name)).shed_order > self._described(priority_class).shed_order
        ]
        return self._queues[max(candidates)[2]].last() if candidates else None

    def _next_queue(self, now_ms: int) -> ClassQueue | None:
        found = [
            (rank_after(self._described(name), now_ms - turn[0], self._best_rank), turn, name)
            for name, queue in self._queues.items()
            if (turn := queue.oldest_turn()) is not None
        ]
        return self._queues[min(found)[2]] if found else None

    def _described(self, priority_class: str) -> PriorityClass:
        return self._classes.get(priority_class, self._of_no_class)

    def _weight_of(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def _cost(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens * self._costs.prompt + output_tokens * self._costs.output

    def _forget(self, request: Waiting) -> None:
        del self._waiting[request.request_id]
        self.waiting_tokens -= request.tokens
