"""The page around the charts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import ensure_csrf_cookie

from controlplane.core.security import Caller
from controlplane.web.access import page
from dashboards.backend.adapters import answering
from dashboards.dash_app import app
from dashboards.policy import PAGE_POLICY


# The cookie is where Dash takes the token for its callbacks from.
@ensure_csrf_cookie
@page()
def home(request: HttpRequest, caller: Caller) -> HttpResponse:
    with answering(request):
        app.server.prepare()
        response = HttpResponse(app.index())  # type: ignore[no-untyped-call]
    response["Content-Security-Policy"] = PAGE_POLICY
    return response
