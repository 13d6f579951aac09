"""What every page has around its content."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from controlplane.configs.history import Damaged
from controlplane.core.models import Role, User
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.web import navigation
from controlplane.web.convergence import firing, summary
from controlplane.web.kept import Kept
from controlplane.web.shown.fleet import SIMULATED_VERSION


def frame_of(request: HttpRequest, section: str = "") -> dict[str, Any]:
    """What a page's frame shows: the navigation, what the person may do, how the fleet stands, whether any is
    simulated. `section`: the page's, of the navigation."""
    # A request that is refused early has no `user` yet.
    user = getattr(request, "user", None)
    role = Role(user.role) if isinstance(user, User) else None
    whole_fleet = isinstance(user, User) and user.tenants is None
    return {
        "role": role,
        # Nothing of the fleet is for people who are limited to some tenants.
        "whole_fleet": whole_fleet,
        "navigation": list(navigation.links(request, section, whole_fleet=whole_fleet)) if role else [],
        "may_operate": role is not None and role.covers(Role.OPERATOR),
        "may_admin": role is not None and role.covers(Role.ADMIN),
        "fleet": _fleet() if whole_fleet else None,
        "simulated": role is not None and _simulated.get("", _is_simulated),
    }


# A node that is simulated stays so.
_simulated: Kept[bool] = Kept(30.0)


def _is_simulated() -> bool:
    """A simulated engine says so in the version that its node's agent reads."""
    nodes, gpus = (model.objects.filter(simulated=True).order_by().values("pk") for model in (Node, Gpu))
    engines = Engine.objects.filter(version__endswith=SIMULATED_VERSION).order_by().values("pk")
    return nodes.union(gpus, engines, all=True).exists()


def _fleet() -> dict[str, Any]:
    try:
        return summary()
    except Damaged:
        # The hub's log says what is wrong; pages that do not need the configuration go on.
        return {"look": "lost", "firing": firing()}
