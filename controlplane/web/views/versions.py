"""Versions of models: which one a family's clients get, who stays with another, what is retired."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Pool
from controlplane.fleet.services import versions as service
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.effects import tenants_of
from controlplane.web.shown import versions as versions_read
from controlplane.web.views.review import Proposal, confirm

ROWS_PER_PAGE = 100
_ID_MAX = 2**63 - 1


@page()
def versions(request: HttpRequest, caller: Caller) -> HttpResponse:
    start = number_in(request, "before") or 0
    rows, following = service.page(limit=ROWS_PER_PAGE, after=start)
    body = {"family": "FAMILY", "version": "VERSION", "model": "MODEL"}
    context = {
        "section": "versions",
        "lines": versions_read.lines(rows),
        "next_address": following and f"{reverse('web:versions')}?before={following}",
        **followed(request, caller),
        "curl_versions": curl(request, "GET", "/model-versions"),
        "curl_publish": curl(request, "POST", "/model-versions", query={"reason": "WHY"}, body=body),
    }
    return render(request, "web/versions.html", context)


@page(Role.ADMIN)
def retire_version(request: HttpRequest, caller: Caller, version_id: int) -> HttpResponse:
    title = _("Retire %(version)s") % {"version": _named(version_id)}
    pools = Pool.objects.filter(model__version=version_id).values_list("name", flat=True)
    note = _(
        "Its engines take no new work, end what runs, and are stopped or put to sleep where their nodes allow. "
        "Its model, pools and engines stay."
    )

    def retire(unit: UnitOfWork) -> None:
        service.retire(unit, version_id)

    proposal = Proposal(
        section="versions",
        title=title,
        apply_label=_("Retire it"),
        action=retire,
        trail=[(reverse("web:versions"), _("Versions of models"))],
        done=reverse("web:versions"),
        curl=curl(request, "POST", f"/model-versions/{version_id}/retire", query=reason_of(request)),
        note=note,
        dangerous=True,
        whom=tenants_of(pools),
        refused_title=_("This version is not retired"),
    )
    return confirm(request, caller, proposal)


@page(Role.ADMIN)
def bring_version_back(request: HttpRequest, caller: Caller, version_id: int) -> HttpResponse:
    def bring_back(unit: UnitOfWork) -> None:
        service.bring_back(unit, version_id)

    proposal = Proposal(
        section="versions",
        title=_("Bring %(version)s back") % {"version": _named(version_id)},
        apply_label=_("Bring it back"),
        action=bring_back,
        trail=[(reverse("web:versions"), _("Versions of models"))],
        done=reverse("web:versions"),
        curl=curl(request, "POST", f"/model-versions/{version_id}/bring-back", query=reason_of(request)),
        note=_("Its engines are woken or started where their nodes allow, and take work again."),
        refused_title=_("This version is not brought back"),
    )
    return confirm(request, caller, proposal)


def _named(version_id: int) -> str:
    if version_id > _ID_MAX:
        raise NotFound(_("There is no such version."))
    row = service.get(version_id)
    return f"{row.family} {row.version}"
