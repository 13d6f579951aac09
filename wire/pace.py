"""How patient a target is with a control plane that is silent, away or refusing."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Retries wait a random time up to a doubling bound (full jitter), so that a restarted control plane is not met by
    all its targets at once."""

    retry_base_seconds: float = 0.2
    retry_cap_seconds: float = 3.0
    refused_cap_seconds: float = 30.0
    connect_seconds: float = 5.0
    # Three pings missed.
    silence_seconds: float = 30.0
    event_limit_bytes: int = 64 * 2**20

    def delay_seconds(self, attempt: int, cap_seconds: float) -> float:
        bound = min(cap_seconds, self.retry_base_seconds * 2 ** min(attempt, 30))
        return random.uniform(0, bound)  # noqa: S311 - spreads load, guards nothing
