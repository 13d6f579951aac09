"""Breakers by name: of engines and of pools, and what other gateways hear of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from policy.breaker import Breaker, Outcome, Permit, State
from wire.snapshot import BreakerThresholds

Kind = Literal["engine", "pool"]
# (kind, name, `open` or `closed`, for how many milliseconds from now)
Tell = Callable[[Kind, str, State, int], None]


class NamedBreaker(Breaker):
    """A breaker that tells when what it saw itself opens or closes it; what others told it is not told again."""

    def __init__(self, kind: Kind, name: str, thresholds: BreakerThresholds, tell: Tell) -> None:
        super().__init__(thresholds)
        self._kind: Kind = kind
        self._name, self._tell = name, tell

    def record(self, permit: Permit, outcome: Outcome, now_ms: int) -> None:
        before = self.state(now_ms)
        super().record(permit, outcome, now_ms)
        after = self.state(now_ms)
        if after != before and after != "half_open":
            self._tell(self._kind, self._name, after, self.retry_in_ms(now_ms))
