"""What tests put into a fair queue, and all that comes out of it."""

from __future__ import annotations

from policy.fairness import FairQueue, Waiting
from wire.snapshot import PriorityClass

CLASSES = {
    "gold": PriorityClass(rank=0, ageing_ms=1_000),
    "silver": PriorityClass(rank=2, ageing_ms=1_000, shed_order=1),
    "bulk": PriorityClass(rank=5, ageing_ms=2_000, shed_order=2),
}


def asked(
    request_id: str, tenant: str = "a", priority_class: str = "gold", prompt: int = 10, output: int = 0
) -> Waiting:
    return Waiting(request_id, tenant, priority_class, prompt, output)


def served(queue: FairQueue, now_ms: int = 0) -> list[str]:
    """Everything that waits, in the order in which it is served at one moment."""
    found = []
    while (request := queue.pop(now_ms)) is not None:
        found.append(request.request_id)
    return found
