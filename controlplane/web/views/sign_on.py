"""Single sign-on: what is configured, what to register at the provider, who got in and who did not, and a test."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core import oidc_rows as rows
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web import oidc
from controlplane.web.access import page
from controlplane.web.curl import curl
from controlplane.web.shown import sign_on
from wire.settings import Setting


@page()
def sso(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _page(request, {})


@page(Role.ADMIN)
def check_sso(request: HttpRequest, caller: Caller) -> HttpResponse:
    """Asks the provider where the form was sent; an address alone asks nobody."""
    return _page(request, {"findings": sign_on.check()} if request.method == "POST" else {})


def _page(request: HttpRequest, found: dict[str, Any]) -> HttpResponse:
    context = {
        "section": "sso",
        "configured": oidc.is_configured(),
        "facts": _facts(),
        "to_register": [
            (_("Redirect address"), request.build_absolute_uri(reverse(oidc.CALLBACK))),
            (_("Address after the log-out"), request.build_absolute_uri(reverse("web:login"))),
        ],
        "claim": rows.ROLE_CLAIM.read(),
        "grants": sorted(rows.ROLES.read().items()),
        "log_ins": sign_on.last_log_ins(),
        "failures": sign_on.failures(),
        "curl_sso": curl(request, "GET", "/single-sign-on"),
        "curl_check": curl(request, "POST", "/single-sign-on/check"),
        **found,
    }
    return render(request, "web/sso.html", context)


def _facts() -> list[tuple[str, str, str]]:
    """What is set, its value and the setting that gives it. Of the secret only whether there is one."""
    secret = _("set") if rows.CLIENT_SECRET.read() else _("none: a public client, which PKCE alone protects")
    shown: list[tuple[str, str, Setting[Any]]] = [
        (_("Issuer"), rows.ISSUER.read(), rows.ISSUER),
        (_("Name on the log-in page"), rows.NAME.read(), rows.NAME),
        (_("Client"), rows.CLIENT_ID.read(), rows.CLIENT_ID),
        (_("Client's secret"), secret, rows.CLIENT_SECRET),
        (_("Scopes asked for"), ", ".join(rows.SCOPES.read()), rows.SCOPES),
        (_("Claim of the name"), rows.USERNAME_CLAIM.read(), rows.USERNAME_CLAIM),
        (_("Claim of the role"), rows.ROLE_CLAIM.read(), rows.ROLE_CLAIM),
        (_("Signatures taken"), ", ".join(rows.ALGORITHMS_TAKEN.read()), rows.ALGORITHMS_TAKEN),
        (_("Certificates"), str(rows.CA_FILE.read() or _("those that come with the program")), rows.CA_FILE),
        (_("A log-in holds (minutes)"), str(rows.SESSION_MINUTES.read()), rows.SESSION_MINUTES),
        (_("Tokens rest without a log-in after (days)"), str(rows.TOKEN_DAYS.read()), rows.TOKEN_DAYS),
    ]
    return [(label, value, setting.name) for label, value, setting in shown]
