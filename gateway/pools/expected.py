"""How much output is expected of a tenant's next request: what its last ones got, and never more than it may get."""

from __future__ import annotations

from collections.abc import Container

# The weight of one request among those before it: the last sixteen make up most of it.
_WEIGHT = 1 / 16


class ExpectedOutput:
    """Running means, one a tenant. Of a tenant without any all that it asks for is expected."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def of(self, tenant: str, largest: int) -> int:
        return min(largest, round(self._means.get(tenant, largest)))

    def learn(self, tenant: str, output_tokens: int) -> None:
        before = self._means.get(tenant, output_tokens)
        self._means[tenant] = before + (output_tokens - before) * _WEIGHT

    def forget_others(self, tenants: Container[str]) -> None:
        """Keep those of these tenants alone."""
        self._means = {name: mean for name, mean in self._means.items() if name in tenants}
