"""Users: who may log in, as what, and an end to it."""

from __future__ import annotations

import secrets
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from controlplane.core import oidc_rows, users
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Role, User
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import SecretForm
from controlplane.web.forms.people import NewUserForm, UserForm
from controlplane.web.listed import Wanted, listed
from controlplane.web.shown.people import log_ins_in_words, log_ins_of, person_lines, what_ends
from controlplane.web.views.noun_pages import Frame, ask
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.secret import secret_page

# 120 bits: nobody guesses it, and a person can type it once.
_PASSWORD_BYTES = 15


@page()
def users_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    wanted = Wanted.of(request)
    page_of = listed(User.objects.filter(username__icontains=wanted.text).order_by("username"), wanted)
    context = {
        "section": "users",
        "lines": person_lines(page_of.rows),
        "listed": page_of,
        "provider": oidc_rows.NAME.read(),
        "curl_users": curl(request, "GET", "/users"),
    }
    return render(request, "web/users.html", context)


@page(Role.ADMIN)
def new_user(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = NewUserForm(request.POST or None, initial={"role": Role.VIEWER})

    def create(unit: UnitOfWork) -> str:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        users.create(unit, form.cleaned_data["username"], {**form.person(), "password": password})
        return password

    body = {"username": "NAME", "role": "viewer", "password": "PASSWORD"}
    frame = {
        **_frame(_("New user"), _("Make the user")),
        "note": _(
            "A first password is made and shown once, on the next page. Who has it can change it, under Account."
        ),
        "line": curl(request, "POST", "/users", query=reason_of(request), body=body),
    }
    return secret_page(request, caller, form, create, "web/secret_form.html", frame, _shown)


@page(Role.ADMIN)
def edit_user(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = users.get(name)
    current = users.describe(row)
    form = UserForm(request.POST or None, initial=current)
    form.row = current

    def changed() -> dict[str, Any]:
        return {field: value for field, value in form.values().items() if value != current[field]}

    def change(unit: UnitOfWork) -> None:
        users.update(unit, name, changed())

    title = _("Change %(name)s") % {"name": name}
    frame = Frame("users", title, _trail(), reverse("web:users"), lambda: _note(row, changed()))
    return ask(request, caller, form, frame, change, ("PATCH", f"/users/{name}"), changed)


def _note(row: User, changes: dict[str, Any]) -> str:
    note = what_ends(row, changes)
    if row.oidc_issuer is not None and changes.keys() & {"role", "tenants"}:
        note += " " + _("Role and tenants become what the provider says again at the next log-in.")
    return note


@page(Role.ADMIN)
def reset_password(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = users.get(name)
    form = SecretForm(request.POST or None)

    def reset(unit: UnitOfWork) -> str:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        users.update(unit, name, {"password": password})
        return password

    frame = {
        **_frame(_("New password for %(name)s") % {"name": name}, _("Make a new password")),
        "note": what_ends(row, {"password": ""}),
        "line": curl(request, "PATCH", f"/users/{name}", query=reason_of(request), body={"password": "PASSWORD"}),
    }
    return secret_page(request, caller, form, reset, "web/secret_form.html", frame, _shown)


@page(Role.ADMIN)
def end_log_ins(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = users.get(name)

    def end(unit: UnitOfWork) -> None:
        users.end_log_ins(unit, name)

    note = _("Ended at once, in all browsers: %(log_ins)s. API tokens go on: revoke them, or switch the user off.")
    proposal = Proposal(
        section="users",
        title=_("End the log-ins of %(name)s") % {"name": name},
        apply_label=_("End them"),
        action=end,
        trail=_trail(),
        done=reverse("web:users"),
        curl=curl(request, "POST", f"/users/{name}/end-log-ins", query=reason_of(request)),
        note=note % {"log_ins": log_ins_in_words(len(log_ins_of(row)))},
        dangerous=True,
    )
    return confirm(request, caller, proposal)


def _frame(title: str, button: str) -> dict[str, Any]:
    return {"section": "users", "title": title, "button": button, "trail": _trail(), "done": reverse("web:users")}


def _shown(unit: UnitOfWork) -> dict[str, Any]:
    return {"kept": _("The password is shown this once. Only its hash is kept, so that nobody can show it again.")}


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:users"), pgettext("people", "Users"))]
