"""The order between priority classes: by rank, and a turn gains ranks while it waits, up to the best one.

Once in the best rank nothing that arrives later goes before it, since there the older one goes first. So the wait is
bounded wherever a class ages: `waits_at_most_ms` is that bound. Source: seed 1, section 5 (ageing).
"""

from __future__ import annotations

from collections.abc import Iterable

from wire.snapshot import PriorityClass


def rank_after(priority_class: PriorityClass, waited_ms: int, best_rank: int) -> int:
    """The rank of a request that has waited so long: one less for every whole `ageing_ms`, never below `best_rank`."""
    gained = max(0, waited_ms) // priority_class.ageing_ms if priority_class.ageing_ms else 0
    return max(best_rank, priority_class.rank - gained)


def waits_at_most_ms(priority_class: PriorityClass, classes: Iterable[PriorityClass]) -> int | None:
    """After so long a wait no request of another class that arrives later goes before one of this class.

    By then its turn stands in the best rank, where the older one goes first. None: there is no bound, since a class
    that never ages has one only if none of `classes` (all that share the queue) has a better rank. Which tenant takes
    the class's turn is a matter of its share, not of time.
    """
    to_gain = priority_class.rank - min((each.rank for each in classes), default=priority_class.rank)
    if to_gain <= 0:
        return 0
    return to_gain * priority_class.ageing_ms or None
