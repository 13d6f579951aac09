"""What an address that does not exist answers: a problem body to scripts, a page to people."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.views.defaults import page_not_found

from controlplane.core.errors import NotFound, problem_response

API_PREFIX = "/api/"


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if request.path.startswith(API_PREFIX):
        return problem_response(NotFound("there is no such call; /api/v1/docs lists them all"))
    return page_not_found(request, exception)
