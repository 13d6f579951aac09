"""Expected wait against load: a server's queue by M/M/1, from half of what it can do to nearly all of it.

Source: seed 1, "goodput": the wait grows with load ÷ (1 - load); section 8 for the cap of a queue.
"""

from __future__ import annotations

from typing import NamedTuple

from policy.queue import wait_factor

LOADS_PERMILLE = (500, 600, 700, 800, 850, 900, 950, 990)


class Wait(NamedTuple):
    """At one load. `waiting`: requests in the queue on average (Little's law)."""

    load_permille: int
    requests_per_second: float
    service_times: float
    seconds: float
    waiting: float


def waits(served_per_second: float) -> list[Wait]:
    """For each of LOADS_PERMILLE of a server that finishes so many requests a second."""
    found = []
    for permille in LOADS_PERMILLE:
        rho = permille / 1000
        arriving, factor = served_per_second * rho, wait_factor(rho)
        seconds = factor / served_per_second
        found.append(Wait(permille, arriving, factor, seconds, arriving * seconds))
    return found
