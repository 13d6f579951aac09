"""The runbooks of the default rules: the list of them, and one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from controlplane.alerts import runbooks as kept
from controlplane.alerts.models import Incident, IncidentState, Rule
from controlplane.core.errors import NotFound
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl
from controlplane.web.shown.runbook_text import as_html, line_as_html

SECTION = "rules"
_INCIDENTS_SHOWN = 20


@page()
def runbooks(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {
        "section": SECTION,
        "trail": _trail(),
        "themes": [
            (title, [(each, line_as_html(each.says)) for each in entries])
            for title, entries in kept.by_theme(_language())
        ],
        "curl_rules": curl(request, "GET", "/rules"),
    }
    return render(request, "web/runbooks.html", context)


@page()
def runbook(request: HttpRequest, caller: Caller, slug: str) -> HttpResponse:
    """With the rule that it is about, and what fires of it now. Raises NotFound."""
    text = kept.page(slug, _language())
    if text is None:
        raise NotFound(f"there is no runbook {slug!r}; /{kept.PATH} lists them")
    alertname = text.markdown.splitlines()[0].removeprefix("# ")
    rule = Rule.objects.filter(alertname=alertname).first() or Rule.objects.filter(name=alertname).first()
    firing = Incident.objects.filter(
        state=IncidentState.FIRING, alerts__state=IncidentState.FIRING, alerts__labels__alertname=alertname
    )
    context = {
        "section": SECTION,
        "trail": [*_trail(), (reverse("web:runbooks"), _("Runbooks"))],
        "alertname": alertname,
        "text": as_html(text.markdown),
        "language": text.language,
        "rule": rule,
        "curl_rule": curl(request, "GET", f"/rules/{rule.name}" if rule else "/rules"),
        "firing": list(firing.distinct().order_by("-started_at")[:_INCIDENTS_SHOWN]),
    }
    return render(request, "web/runbook.html", context)


def _language() -> str:
    return get_language() or kept.LANGUAGE


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:rules"), _("Rules"))]
