"""What a client's name for a model stands for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from wire.snapshot import Alias, Tenant


def model_called(name: str, tenant: Tenant, aliases: Mapping[str, Alias]) -> str:
    """The version that the tenant stays with, else what the alias stands for, else the name itself."""
    pinned = tenant.pins.get(name)
    if pinned is not None:
        return pinned
    alias = aliases.get(name)
    return name if alias is None else alias.model


def may_call(tenant: Tenant, asked: str, model: str) -> bool:
    """Whether a tenant may have the model by the name `asked`: it is allowed the one or the other.

    Who is allowed an alias has whatever it stands for, also the next version of it.
    """
    return tenant.models is UNSET or model in tenant.models or asked in tenant.models


def models_of(tenant: Tenant, aliases: Mapping[str, Alias]) -> frozenset[str] | None:
    """The models that a tenant may have by some name; None: all."""
    if tenant.models is UNSET:
        return None
    return frozenset(tenant.models) | {model_called(name, tenant, aliases) for name in tenant.models}
