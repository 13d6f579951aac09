"""API tokens, with which people's scripts call REST: their own, and for admins everyone's."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core import api_tokens
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import ApiToken, Role
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.people import NewTokenForm
from controlplane.web.shown.people import token_lines
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.secret import secret_page

ROWS_PER_PAGE = 100
_ID_MAX = 2**63 - 1


@page(judge=any_of_theirs)
def api_tokens_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    everyone = bool(request.GET.get("everyone")) and _may_see_all(caller)
    start = number_in(request, "after") or 0
    rows, following = api_tokens.page(None if everyone else caller.user, ROWS_PER_PAGE, start)
    address = reverse("web:api_tokens")
    context = {
        "section": "api_tokens",
        "lines": token_lines(rows),
        "everyone": everyone,
        "may_see_all": _may_see_all(caller),
        "paged": bool(start),
        "next_address": following and f"{address}?{'everyone=1&' if everyone else ''}after={following}",
        "curl_tokens": curl(request, "GET", "/api-tokens", query={"everyone": "true"} if everyone else None),
    }
    return render(request, "web/api_tokens.html", context)


@page(judge=any_of_theirs)
def new_api_token(request: HttpRequest, caller: Caller) -> HttpResponse:
    """Of the person's own."""
    form = NewTokenForm(request.POST or None, at_most=caller.role, initial={"role": Role.VIEWER})

    def create(unit: UnitOfWork) -> str:
        return api_tokens.create_from(unit, caller.user, form.values(), at_most=caller.role, maker=None)[1]

    def shown(unit: UnitOfWork) -> dict[str, Any]:
        return {"warning": " ".join(warning.message for warning in unit.warnings)}

    body = form.values() if form.is_valid() else {"name": "NAME", "role": "viewer", "days": api_tokens.DAYS}
    frame = {
        "section": "api_tokens",
        "title": _("New API token"),
        "button": _("Make the token"),
        "trail": _trail(),
        "done": reverse("web:api_tokens"),
        "note": _("It is shown once, on the next page. A script sends it as “Authorization: Bearer …”."),
        "line": curl(request, "POST", "/api-tokens", query=reason_of(request), body=body),
    }
    return secret_page(request, caller, form, create, "web/secret_form.html", frame, shown)


@page(judge=any_of_theirs)
def revoke_api_token(request: HttpRequest, caller: Caller, token_id: int) -> HttpResponse:
    """The person's own; admins also those of others."""
    whose = None if _may_see_all(caller) else caller.user
    row = ApiToken.objects.select_related("user").filter(pk=min(token_id, _ID_MAX)).first()
    if row is None or (whose is not None and row.user_id != whose.pk):
        raise NotFound(f"there is no API token {token_id}")

    def revoke(unit: UnitOfWork) -> None:
        api_tokens.revoke(unit, row.pk, user=whose, revoker=None)

    everyone = row.user_id != caller.user.pk
    note = _("Scripts that send this token are refused at once. It was last used: %(when)s.")
    proposal = Proposal(
        section="api_tokens",
        title=_("Revoke the API token %(name)s of %(user)s") % {"name": row.name, "user": row.user.username},
        apply_label=_("Revoke it"),
        action=revoke,
        trail=_trail(),
        done=f"{reverse('web:api_tokens')}{'?everyone=1' if everyone else ''}",
        curl=curl(request, "DELETE", f"/api-tokens/{row.pk}", query=reason_of(request)),
        note=note % {"when": _when(row)},
        dangerous=True,
    )
    return confirm(request, caller, proposal)


def _when(row: ApiToken) -> str:
    if row.last_used_at is None:
        return _("never")
    return f"{row.last_used_at:%Y-%m-%d %H:%M} UTC"


def _may_see_all(caller: Caller) -> bool:
    return caller.role.covers(Role.ADMIN) and caller.tenants is None


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:api_tokens"), _("API tokens"))]
