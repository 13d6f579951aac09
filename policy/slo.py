"""Whether a request met what its pool promises: goodput counts those that met all of it.

Source: seed 1, section 21; DistServe (Zhong et al., OSDI 2024) for the name.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from wire.snapshot import Pool, PriorityClass

# What can be promised, in the order of Slo's and Seen's fields.
PROMISES = ("ttft", "tpot", "e2e")


class Slo(NamedTuple):
    """The longest times that are promised, in ms; UNSET: nothing is."""

    ttft_ms: int | UnsetType = UNSET
    tpot_ms: int | UnsetType = UNSET
    e2e_ms: int | UnsetType = UNSET

    @property
    def promises(self) -> bool:
        """Whether anything is."""
        return self != _NOTHING


_NOTHING = Slo()


class Seen(NamedTuple):
    """What one request took, in ms; None: it cannot be known, as the first token of a whole answer."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


def promised(pool: Pool, priority_class: PriorityClass | None) -> Slo:
    """What the class sets goes before what the pool sets, field by field."""
    if priority_class is None:
        return Slo(pool.ttft_slo_ms, pool.tpot_slo_ms, pool.e2e_slo_ms)
    return Slo(
        pool.ttft_slo_ms if priority_class.ttft_slo_ms is UNSET else priority_class.ttft_slo_ms,
        pool.tpot_slo_ms if priority_class.tpot_slo_ms is UNSET else priority_class.tpot_slo_ms,
        pool.e2e_slo_ms if priority_class.e2e_slo_ms is UNSET else priority_class.e2e_slo_ms,
    )


def kept(slo: Slo, seen: Seen) -> dict[str, bool]:
    """Whether each promised time that is known was kept, by `ttft`, `tpot` and `e2e`."""
    times = zip(PROMISES, slo, seen, strict=True)
    return {name: took <= most for name, most, took in times if most is not UNSET and took is not None}


def met(slo: Slo, seen: Seen) -> bool | None:
    """Whether every promised time that is known was kept; None where none of them is known."""
    verdicts = kept(slo, seen)
    return all(verdicts.values()) if verdicts else None
