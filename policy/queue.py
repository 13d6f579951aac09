"""Queue arithmetic: how long a queue may be, and what waiting costs as utilisation rises.

Utilisation here is that of queueing theory, arrivals ÷ service rate, not a GPU's. Source: seed 1, "goodput" and
section 8; J. Little, "A Proof for the Queuing Formula L = λW" (1961); L. Kleinrock, Queueing Systems I (M/M/1).
"""

from __future__ import annotations

import math

MS_PER_SECOND = 1000


def queue_cap(served_per_second: float, acceptable_wait_ms: int) -> int:
    """How many may wait: one more would wait longer than is acceptable, and only take up a place.

    Served at r a second, the n-th waits n ÷ r. Rounded down.
    """
    # To a millionth first: a product that is whole on paper must not lose a place to binary fractions.
    return math.floor(round(served_per_second * acceptable_wait_ms / MS_PER_SECOND, 6))


def wait_ms(waiting: int, served_per_second: float) -> int | None:
    """How long the last of `waiting` waits, rounded up; None where nothing is served."""
    if waiting == 0:
        return 0
    if served_per_second <= 0:
        return None
    return math.ceil(round(waiting * MS_PER_SECOND / served_per_second, 6))


def debt_per_second(arriving_per_second: float, served_per_second: float) -> float:
    """By how much the backlog grows each second. A queue keeps this debt for a while; it does not pay it."""
    return max(0.0, arriving_per_second - served_per_second)


def mean_in_system(arriving_per_second: float, mean_seconds: float) -> float:
    """Little's law, L = λW: how many (requests, tokens) are inside on average. Holds for any distribution."""
    return arriving_per_second * mean_seconds


def mean_seconds_in_system(mean_inside: float, leaving_per_second: float) -> float:
    """Little's law read backwards, W = L ÷ λ; infinite where nothing leaves while some are inside."""
    if mean_inside == 0:
        return 0.0
    return mean_inside / leaving_per_second if leaving_per_second > 0 else math.inf


def utilisation(arriving_per_second: float, served_per_second: float) -> float:
    """Arrivals by service rate. From 1 on no queue is long enough."""
    if arriving_per_second == 0:
        return 0.0
    return arriving_per_second / served_per_second if served_per_second > 0 else math.inf


def wait_factor(rho: float) -> float:
    """M/M/1: the mean wait in the queue, in mean service times, rho ÷ (1 - rho); infinite from rho = 1 on."""
    return rho / (1 - rho) if rho < 1 else math.inf


def utilisation_for_wait_factor(factor: float) -> float:
    """The utilisation at which the mean wait is `factor` service times: what to plan for."""
    return 1.0 if math.isinf(factor) else factor / (1 + factor)
