"""Why clients may not get a version that is published: no pool, no route leads there, or a tenant may not use it."""

from __future__ import annotations

from controlplane.core.nouns import some_of
from controlplane.fleet.models import ModelVersion, Pool
from controlplane.routing.models import Route
from controlplane.tenants.models import Tenant


def unrouted(version: ModelVersion) -> list[str]:
    """In words; whether a route matches its requests is for the tester of routes."""
    model = version.model
    serving = Pool.objects.filter(model=model)
    if model.adapter:
        serving |= Pool.objects.filter(adapters__has_key=model.adapter)
    pools = set(serving.values_list("name", flat=True))
    refused = f"requests for {version.family!r} are refused until"
    if not pools:
        return [f"no pool serves model {model.name!r}: {refused} one does"]
    if not any(pools & (route or {}).keys() for route in Route.objects.values_list("pools", flat=True)):
        return [f"no route leads to a pool of model {model.name!r}: {refused} one does"]
    return []


def not_allowed(version: ModelVersion) -> list[str]:
    """Tenants that may use another version of the family, but neither this one nor the family, in words."""
    others = set(
        ModelVersion.objects.filter(family=version.family).exclude(pk=version.pk).values_list("model__name", flat=True)
    )
    if not others:
        return []
    listing = Tenant.objects.exclude(models=None).order_by("name").values_list("name", "models", "pins")
    lost = []
    for name, models, pins in listing:
        used, wanted = {*(models or ())}, {version.family, version.model.name}
        if others & used and not wanted & used and version.family not in pins:
            lost.append(name)
    if not lost:
        return []
    may = f"may use neither {version.family!r} nor {version.model.name!r}, and are refused it"
    return [f"these tenants {may}: {some_of(lost)}; allow them {version.family!r}"]
