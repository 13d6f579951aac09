"""Who may open a page: a log-in and a role, or the page that says what is missing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import update_wrapper
from http import HTTPStatus
from typing import Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from controlplane.core import sessions
from controlplane.core.changes import Actor
from controlplane.core.errors import Refused
from controlplane.core.models import Role, User
from controlplane.core.nouns import some_of
from controlplane.core.scope import Judge
from controlplane.core.security import Caller
from controlplane.web.writing import is_made

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, Caller, P], HttpResponse]
# In the address of the log-in: a form was sent without one.
UNSENT = "unsent"
# The least role for a page, where it depends on who asks.
LeastRole = Callable[[Actor], Role]


def page(
    needs: Role | LeastRole = Role.VIEWER, *, judge: Judge | None = None
) -> Callable[[View[P]], Callable[Concatenate[HttpRequest, P], HttpResponse]]:
    """A view for people of at least this role, which gets the `Caller` as its second argument.

    `judge`: what people of some tenants may reach of it; None: it is closed to them.
    Without a log-in it redirects to it. What the view raises as `Refused` becomes a page of that status.
    """

    def decorate(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
        @never_cache
        def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            user = request.user
            if not isinstance(user, User):
                return _to_login(request)
            sessions.note_page(request)
            caller = Caller.by_log_in(request, user)
            needed = needs if isinstance(needs, Role) else needs(caller.actor)
            if not caller.role.covers(needed):
                detail = _("This page needs the role %(needed)s; yours is %(yours)s. An admin can change it.")
                shown = {"needed": needed.label, "yours": caller.role.label}
                return _error(request, HTTPStatus.FORBIDDEN, detail % shown)
            if caller.tenants is not None and judge is None:
                return _error(request, HTTPStatus.FORBIDDEN, of_whole_fleet(caller.tenants))
            try:
                if caller.tenants is not None and judge is not None:
                    judge(caller.tenants, kwargs)
                return view(request, caller, *args, **kwargs)
            except Refused as refused:
                return _error(request, HTTPStatus(refused.status), refused.detail)

        update_wrapper(answer, view)
        return answer

    return decorate


def of_whole_fleet(tenants: Iterable[str]) -> str:
    """Why a page is closed to people of some tenants."""
    detail = _("This is for people of the whole fleet; you are limited to %(tenants)s. An admin can change it.")
    return detail % {"tenants": some_of(sorted(tenants)) or "–"}


def start_page(user: User) -> str:
    """Where a person begins who asked for no page."""
    return reverse("web:overview" if user.tenants is None else "web:tenants")


def _to_login(request: HttpRequest) -> HttpResponse:
    if request.headers.get("HX-Request"):
        # A panel that refreshes itself: the whole page must go, not the log-in form into the panel.
        return HttpResponse(headers={"HX-Refresh": "true"})
    to_login = redirect_to_login(request.get_full_path())
    if request.method == "POST" and not _was_made(request):
        # Whose log-in ended while the form was open, as by a role that was taken away, thinks that it was carried out.
        to_login["Location"] += f"&{UNSENT}=1"
    return to_login


def _was_made(request: HttpRequest) -> bool:
    """Whether the form's change is there: of a button that was pressed twice the first press may end the log-in."""
    try:
        change_id = uuid.UUID(request.POST.get("change_id") or request.POST.get("form_id") or "")
    except ValueError:
        return False
    return is_made(change_id)


def _error(request: HttpRequest, status: HTTPStatus, detail: str) -> HttpResponse:
    return render(request, "web/error.html", {"error_status": int(status), "detail": detail}, status=status)
