"""Who may open a page: a log-in and a role, or the page that says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from http import HTTPStatus
from typing import Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from controlplane.core.changes import Actor
from controlplane.core.errors import Refused
from controlplane.core.models import Role, User
from controlplane.core.security import Caller, address_of

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, Caller, P], HttpResponse]


def page(needs: Role = Role.VIEWER) -> Callable[[View[P]], Callable[Concatenate[HttpRequest, P], HttpResponse]]:
    """A view for people of at least this role, which gets the `Caller` as its second argument.

    Without a log-in it redirects to it. What the view raises as `Refused` becomes a page of that status.
    """

    def decorate(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
        @never_cache
        def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            user = request.user
            if not isinstance(user, User):
                return _to_login(request)
            role = Role(user.role)
            if not role.covers(needs):
                detail = _("This page needs the role %(needed)s; yours is %(yours)s. An admin can change it.")
                return _error(request, HTTPStatus.FORBIDDEN, detail % {"needed": needs.label, "yours": role.label})
            caller = Caller(user, role, Actor("user", user.username, address_of(request)))
            try:
                return view(request, caller, *args, **kwargs)
            except Refused as refused:
                return _error(request, HTTPStatus(refused.status), refused.detail)

        update_wrapper(answer, view)
        return answer

    return decorate


def _to_login(request: HttpRequest) -> HttpResponse:
    if request.headers.get("HX-Request"):
        # A panel that refreshes itself: the whole page must go, not the log-in form into the panel.
        return HttpResponse(headers={"HX-Refresh": "true"})
    return redirect_to_login(request.get_full_path())


def _error(request: HttpRequest, status: HTTPStatus, detail: str) -> HttpResponse:
    return render(request, "web/error.html", {"error_status": int(status), "detail": detail}, status=status)
