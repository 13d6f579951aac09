"""Whose tokens a pool's engines process, beside what each tenant's weight gives it a right to.

Source: seed 1, section 6; policy/fairness.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from controlplane.diagnosis.detector import Fleet

# Half of a pool, and for its weight six times what the others get together for theirs: tenants differ, and some are
# quiet when others are not.
_CROWDING_SHARE, _CROWDING_TIMES = 0.5, 6.0


class Crowding(NamedTuple):
    """`share`: of the pool's tokens. `fair`: of its weight among the tenants that ask the pool at all."""

    tenant: str
    share: float
    fair: float

    @property
    def limit(self) -> float:
        """The share from which it crowds the pool."""
        return max(_CROWDING_SHARE, _CROWDING_TIMES * self.fair / (1 - self.fair + _CROWDING_TIMES * self.fair))


def crowding(shares: Mapping[str, float], fleet: Fleet) -> Crowding | None:
    """The tenant that takes far more of a pool than its weight says, where others ask for something, too."""
    known = {tenant: share for tenant, share in shares.items() if share > 0 and tenant in fleet.tenants}
    if len(known) < 2:
        return None
    tenant = max(known, key=lambda name: (known[name], name))
    fair = weight_share(tenant, known, fleet)
    found = Crowding(tenant, known[tenant] / sum(known.values()), fair)
    return found if found.share >= found.limit else None


def weight_share(tenant: str, among: Mapping[str, float], fleet: Fleet) -> float:
    weights = {name: int(fleet.tenants[name]["weight"]) for name in among}
    return weights[tenant] / sum(weights.values())
