"""REST of single sign-on: how it is configured, and whether its provider is as it must be."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router

from controlplane.core import oidc_rows as rows
from controlplane.core.fields import iso
from controlplane.core.security import admin, viewer
from controlplane.web import oidc
from controlplane.web.shown import sign_on
from wire.canonical import Document

router = Router(tags=["users"])


@router.get("/single-sign-on", auth=viewer, response=dict[str, Any], summary="How people log in by a provider")
def read_single_sign_on(request: HttpRequest) -> Document:
    """`redirect_uri` is what the provider must know us by. The client's secret is told by nobody."""
    return {
        "configured": oidc.is_configured(),
        "issuer": rows.ISSUER.read() or None,
        "name": rows.NAME.read(),
        "client_id": rows.CLIENT_ID.read(),
        "has_client_secret": bool(rows.CLIENT_SECRET.read()),
        "redirect_uri": request.build_absolute_uri(reverse(oidc.CALLBACK)),
        "post_logout_redirect_uri": request.build_absolute_uri(reverse("web:login")),
        "scopes": list(rows.SCOPES.read()),
        "username_claim": rows.USERNAME_CLAIM.read(),
        "role_claim": rows.ROLE_CLAIM.read(),
        "roles": {value: {"role": grant.role, "tenants": _names(grant)} for value, grant in rows.ROLES.read().items()},
        "algorithms": list(rows.ALGORITHMS_TAKEN.read()),
        "session_minutes": rows.SESSION_MINUTES.read(),
        "token_days": rows.TOKEN_DAYS.read(),
        "failures": [{"at": iso(row.at), "address": row.address, "why": row.why} for row in sign_on.failures()],
    }


@router.post("/single-sign-on/check", auth=admin, response=dict[str, Any], summary="Ask the provider, and judge it")
def check_single_sign_on(request: HttpRequest) -> Document:
    """Reads its discovery document and its keys now. Nothing is stored. `verdict`: good, wait (worth a look), bad."""
    return {"findings": [finding._asdict() for finding in sign_on.check()]}


def _names(grant: rows.Grant) -> list[str] | None:
    return None if grant.tenants is None else list(grant.tenants)
