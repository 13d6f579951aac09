"""The audit: who changed what, from where, when and why."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.core import audit as service
from controlplane.core.audit_export import CONTENT_TYPES
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.curl import curl
from controlplane.web.forms.audit import AuditForm
from controlplane.web.shown.audit import lines

ROWS_PER_PAGE = 50
_FORMATS = {"csv": "CSV", "jsonl": "JSON Lines"}


@page(judge=any_of_theirs)
def audit(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = AuditForm(request.GET, whole_fleet=caller.tenants is None)
    start = number_in(request, "before") or 0
    wanted = form.asked()
    rows, following = (
        service.page(form.search.entries(caller.tenants), ROWS_PER_PAGE, start) if form.is_valid() else ([], None)
    )
    context = {
        "section": "audit",
        "form": form,
        "lines": lines(rows),
        "wanted": wanted,
        "paged": bool(start),
        "next_address": following and f"{reverse('web:audit')}?{urlencode({**_typed(form), 'before': following})}",
        "exports": [
            (_FORMATS[form_of], f"/api/v1/audit/export?{urlencode({**wanted, 'format': form_of})}")
            for form_of in sorted(CONTENT_TYPES)
        ],
        "curl_audit": curl(request, "GET", "/audit", query=wanted),
    }
    return render(request, "web/audit.html", context, status=200 if form.is_valid() else 422)


def _typed(form: AuditForm) -> dict[str, str]:
    """As it was typed, for the next page's form."""
    return {name: form.data[name] for name in form.fields if form.data.get(name)}
