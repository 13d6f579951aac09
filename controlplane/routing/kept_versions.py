"""What keeps a version of a model from being deleted or retired: tenants pinned to it, other routes to its pools."""

from __future__ import annotations

from controlplane.fleet.models import Pool
from controlplane.routing.models import Route
from controlplane.tenants.models import Tenant


def pinned(model: str) -> list[str]:
    """The tenants that stay with this model, in words."""
    # No database finds a map by its values; few tenants have one.
    some = Tenant.objects.exclude(pins={}).order_by("name").values_list("name", "pins")
    return [f"tenant {name!r} is pinned to it" for name, pins in some if model in pins.values()]


def led_by_others(model: str) -> list[str]:
    """The routes that lead requests for other models to this model's pools, in words."""
    pools = set(Pool.objects.filter(model__name=model).values_list("name", flat=True))
    found = []
    for route in Route.objects.order_by("name"):
        cascade = {route.cascade["pool"]} if route.cascade else set()
        led = pools & ((route.pools or {}).keys() | (route.fallbacks or {}).keys() | cascade)
        if led and route.match.get("models", {}).keys() != {model}:
            found.append(f"route {route.name!r} leads other requests to its pool {min(led)!r}")
    return found
