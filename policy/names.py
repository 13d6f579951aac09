"""What a client's name for a model stands for."""

from __future__ import annotations

from collections.abc import Mapping

from wire.snapshot import Alias, Tenant


def model_called(name: str, tenant: Tenant, aliases: Mapping[str, Alias]) -> str:
    """The version that the tenant stays with, else what the alias stands for, else the name itself."""
    pinned = tenant.pins.get(name)
    if pinned is not None:
        return pinned
    alias = aliases.get(name)
    return name if alias is None else alias.model
