"""Retry budget: retries stay a fixed share of requests, so that a failing fleet is not hit harder for failing.

Source: seed 1, section 9; Google SRE, "Handling Overload".
"""

from __future__ import annotations


class RetryBudget:
    """Each request earns `permille`/1000 of a retry. It starts with `burst` retries and saves up no more."""

    def __init__(self, permille: int, burst: int) -> None:
        self._permille = permille
        self._ceiling = self._balance = burst * 1000

    def earn(self) -> None:
        self._balance = min(self._ceiling, self._balance + self._permille)

    @property
    def is_empty(self) -> bool:
        """No retry now: the error goes to the client."""
        return self._balance < 1000

    def spend(self) -> bool:
        """Take one retry; False when the budget is empty."""
        if self.is_empty:
            return False
        self._balance -= 1000
        return True
