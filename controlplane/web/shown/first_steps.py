"""What a newcomer does, one step after another, until requests can be served; each with whether it is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from controlplane.core.models import Role, TargetKind
from controlplane.fleet.models import Model
from controlplane.routing.models import Route
from controlplane.tenants.models import Tenant, TenantKey
from wire.canonical import Document


class Step(NamedTuple):
    """`view`: where it is done, by people of at least the role `needs`."""

    name: str
    title: Promise
    text: Promise
    view: str
    needs: Role
    done: bool


def steps(*, engines: int, pools: int, targets: list[Document], has_keys: bool) -> list[Step]:
    """All steps while one without which nothing is answered is still to be done; none after that."""
    joined = {target["kind"] for target in targets}
    served = engines and has_keys and TargetKind.GATEWAY in joined
    return [] if served else list(_steps(engines, pools, joined))


def _steps(engines: int, pools: int, joined: set[str]) -> Iterator[Step]:
    yield Step(
        "gateway", _("Join a gateway"), _("Clients send their requests to it."),
        "web:join", Role.ADMIN, TargetKind.GATEWAY in joined,
    )  # fmt: skip
    yield Step(
        "node", _("Join a node"), _("Its agent watches GPUs and engines. An engine can be reached without one, too."),
        "web:join", Role.ADMIN, TargetKind.NODE in joined,
    )  # fmt: skip
    yield Step(
        "model", _("Make a model"), _("What clients ask for by name."),
        "web:new_model", Role.ADMIN, pools > 0 or Model.objects.exists(),
    )  # fmt: skip
    yield Step(
        "pool", _("Make a pool"), _("Engines that serve one model, and what they promise."),
        "web:new_pool", Role.OPERATOR, pools > 0,
    )  # fmt: skip
    yield Step(
        "engine", _("Add an engine"), _("One that serves already, by its address."),
        "web:new_engine", Role.OPERATOR, engines > 0,
    )  # fmt: skip
    yield Step(
        "route", _("Make a route"), _("Which requests go to which pool."),
        "web:new_route", Role.OPERATOR, Route.objects.exists(),
    )  # fmt: skip
    yield Step(
        "tenant", _("Make a tenant"), _("Who asks, with limits and a weight."),
        "web:new_tenant", Role.OPERATOR, Tenant.objects.exists(),
    )  # fmt: skip
    yield Step(
        "key", _("Make a key"), _("On the tenant's page: with it, a client sends its first request."),
        "web:tenants", Role.ADMIN, TenantKey.objects.exists(),
    )  # fmt: skip
