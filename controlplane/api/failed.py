"""What a call answers that failed here: 503 where the database cannot serve it now, else 500."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from controlplane.api.not_found import API_PREFIX
from controlplane.core.errors import Failed, Refused, Unavailable, problem_response

# Away, full, locked, read-only or too slow. The connection pool's own errors reach us as OperationalError too.
DATABASE_TROUBLE = (OperationalError, InterfaceError)
RETRY_AFTER_SECONDS = 5


def failure(error: BaseException | None) -> Refused:
    """What the caller is told; the log has the error's own words."""
    if isinstance(error, DATABASE_TROUBLE):
        return Unavailable(
            "the database cannot serve this call now; try again", retry_after_seconds=RETRY_AFTER_SECONDS
        )
    return Failed("the control plane failed to answer; its log says why")


def failed(request: HttpRequest) -> HttpResponse:
    """Django's handler500: it is called while the error is handled. A problem body to scripts, a page to people."""
    refused = failure(sys.exception())
    if request.path.startswith(API_PREFIX):
        return problem_response(refused)
    # Nothing on it is read from the database.
    page = render_to_string("web/failed.html", {"again": refused.retry_after_seconds is not None})
    response = HttpResponse(page, status=refused.status)
    if refused.retry_after_seconds is not None:
        response["Retry-After"] = str(refused.retry_after_seconds)
    return response
