"""One class of a fair queue: which tenant's turn it is, by a virtual token counter.

The counter grows by what a tenant is served, divided by its weight, and the lowest one is served next. A tenant that
begins to wait is lifted to the lowest counter among those that wait already: time in which it asked for nothing gives
no credit. Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from policy.lazy_heap import LazyHeap

# A counter is in parts of a token, so that division by a weight loses nothing that matters.
_PARTS_PER_TOKEN = 2**32


class Waiting(NamedTuple):
    """A request in the queue. `output_tokens`: as many as are expected of it; 0 where only what it got shall count.

    `hold_from_ms`: from when on none may overtake it (policy/overtaking.py); None: there only their number counts.
    """

    request_id: str
    tenant: str
    priority_class: str
    prompt_tokens: int
    output_tokens: int = 0
    hold_from_ms: int | None = None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


class _Tenant:
    """One tenant in one class: its requests, oldest first, and what it was served."""

    __slots__ = ("_floor", "counter", "requests")

    def __init__(self) -> None:
        self.counter = 0
        # Where it last began to wait: a correction brings it no lower.
        self._floor = 0
        self.requests: OrderedDict[str, Waiting] = OrderedDict()

    def lift(self, least: int) -> None:
        self.counter = self._floor = max(self.counter, least)

    def charge(self, cost: int, weight: int) -> None:
        parts = _parts(abs(cost), weight)
        self.counter = max(self._floor, self.counter + (parts if cost > 0 else -parts))


def _parts(cost: int, weight: int) -> int:
    # Rounded up: however large the weight, what is served never counts as nothing.
    return -(-cost * _PARTS_PER_TOKEN // weight)


class ClassQueue:
    """The waiting requests of one class: its turns by age, its tenants by counter."""

    __slots__ = ("_by_counter", "_by_counter_down", "_last_served", "_tenants", "_turns", "_weight_of")

    def __init__(self, weight_of: Callable[[str], int]) -> None:
        self._weight_of = weight_of
        self._tenants: dict[str, _Tenant] = {}
        self._last_served: _Tenant | None = None
        # Request → its turn: (arrival_ms, number in order of arrival).
        self._turns: LazyHeap[tuple[int, int]] = LazyHeap()
        # Tenants that wait, by counter from the lowest and from the highest.
        self._by_counter: LazyHeap[int] = LazyHeap()
        self._by_counter_down: LazyHeap[int] = LazyHeap()

    def push(self, request: Waiting, turn: tuple[int, int]) -> None:
        tenant = self._tenants.setdefault(request.tenant, _Tenant())
        if not tenant.requests:
            tenant.lift(self._least())
            self._order(request.tenant, tenant)
        tenant.requests[request.request_id] = request
        self._turns.put(request.request_id, turn)

    def oldest_turn(self) -> tuple[int, int] | None:
        return self._turns[self._turns.first()] if self._turns else None

    def next(self) -> Waiting:
        """Whose counter is lowest, and its oldest request. Only where some wait."""
        return next(iter(self._tenants[self._by_counter.first()].requests.values()))

    def last(self) -> Waiting:
        """The newest request of the tenant that was served most. Only where some wait."""
        return next(reversed(self._tenants[self._by_counter_down.first()].requests.values()))

    def crowding(self, newcomer: str) -> Waiting | None:
        """The newest request of the tenant with most waiting for its weight, if one more of `newcomer` has fewer."""
        counts = {name: len(self._tenants[name].requests) for name, _ in self._by_counter.items()}
        if not counts:
            return None
        most = max(counts, key=lambda name: (counts[name] / self._weight_of(name), name))
        with_one_more = counts.get(newcomer, 0) + 1
        if counts[most] * self._weight_of(newcomer) <= with_one_more * self._weight_of(most):
            return None
        return next(reversed(self._tenants[most].requests.values()))

    def oldest_turns(self, most: int) -> list[tuple[int, int]]:
        return [turn for turn, _ in self._turns.smallest(most)]

    def in_order(self, cost_of: Callable[[Waiting], int]) -> Iterator[Waiting]:
        """All that wait, in the order in which they would be served if nothing came or left; changes nothing."""
        heads = [(counter, name) for name, counter in self._by_counter.items()]
        heapq.heapify(heads)
        left = {name: iter(self._tenants[name].requests.values()) for _, name in heads}
        while heads:
            counter, name = heads[0]
            request = next(left[name], None)
            if request is None:
                heapq.heappop(heads)
                continue
            yield request
            heapq.heapreplace(heads, (counter + _parts(cost_of(request), self._weight_of(name)), name))

    def serve(self, request: Waiting, cost: int, past: int = 0) -> None:
        """Take it out on the class's oldest turn but for those of the `past` that it overtakes.

        Whoever held that turn holds the request's own from now on.
        """
        holder = self._turns.smallest(past + 1)[-1][1] if past else self._turns.first()
        own = self._turns[request.request_id]
        if holder != request.request_id:
            self._turns.put(holder, own)
        self._last_served = self._tenants[request.tenant]
        self.take_out(request)
        self.charge(request.tenant, cost)

    def serve_at_once(self, name: str, cost: int) -> None:
        """Charge a tenant for a request that need not wait: only where none of the class waits."""
        tenant = self._tenants.setdefault(name, _Tenant())
        tenant.lift(self._least())
        self._last_served = tenant
        tenant.charge(cost, self._weight_of(name))

    def take_out(self, request: Waiting) -> None:
        self._turns.remove(request.request_id)
        tenant = self._tenants[request.tenant]
        del tenant.requests[request.request_id]
        if not tenant.requests:
            self._by_counter.remove(request.tenant)
            self._by_counter_down.remove(request.tenant)

    def charge(self, name: str, cost: int) -> None:
        tenant = self._tenants.get(name)
        if tenant is None:
            return
        tenant.charge(cost, self._weight_of(name))
        if tenant.requests:
            self._order(name, tenant)

    def forget(self, known: Mapping[str, int]) -> None:
        """Drop the counters of tenants that are gone and wait for nothing."""
        self._tenants = {name: each for name, each in self._tenants.items() if each.requests or name in known}

    def _order(self, name: str, tenant: _Tenant) -> None:
        self._by_counter.put(name, tenant.counter)
        self._by_counter_down.put(name, -tenant.counter)

    def _least(self) -> int:
        if self._by_counter:
            return self._by_counter[self._by_counter.first()]
        # Nobody waits: from where the last one left, so that an idle queue is no head start.
        return self._last_served.counter if self._last_served is not None else 0
