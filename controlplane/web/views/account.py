"""A person's own account: who they are here, their password, their log-ins and their scripts' tokens."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core import api_tokens, oidc_rows, users
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.people import OwnPasswordForm
from controlplane.web.shown.people import log_ins_in_words, log_ins_of, token_lines
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.writing import MadeAlready, is_made, once

TOKENS_SHOWN = 20
# No page repeats a password.
_PASSWORDS = {"current": "PRESENT", "password": "NEW"}


@page(judge=any_of_theirs)
def account(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _account_page(request, caller, HTTPStatus.OK)


def _account_page(request: HttpRequest, caller: Caller, status: HTTPStatus) -> HttpResponse:
    tokens, more = api_tokens.page(caller.user, TOKENS_SHOWN)
    context: dict[str, Any] = {
        "section": "account",
        "user": caller.user,
        "provider": oidc_rows.NAME.read(),
        "log_ins": log_ins_of(caller.user),
        "this_key": request.session.session_key,
        "lines": token_lines(tokens),
        "more": more is not None,
        "password_changed": request.GET.get("changed") == "password",
        "curl_account": curl(request, "GET", "/me"),
        "curl_log_ins": curl(request, "GET", "/me/log-ins"),
    }
    return render(request, "web/account.html", context, status=status)


@page(judge=any_of_theirs)
def own_password(request: HttpRequest, caller: Caller) -> HttpResponse:
    """Ends the person's log-ins everywhere else; this browser goes on."""
    back, user = reverse("web:account"), caller.user
    changed = f"{back}?changed=password"
    if user.oidc_issuer is not None:
        return redirect(back)
    form = OwnPasswordForm(request, user)
    if form.is_bound and is_made(form.change_id):
        # The button was pressed twice. What was the present password then is it no more, and no wrong guess.
        return redirect(changed)
    if form.is_valid():
        try:
            with once(caller, "changed their own password", form.cleaned_data["form_id"]) as unit:
                now = users.update(unit, user.username, {"password": form.cleaned_data["password"]})
        except MadeAlready:
            return redirect(changed)
        except Refused as refused:
            form.take_refusal(refused)
        else:
            update_session_auth_hash(request, now)
            return redirect(changed)
    context = {
        "section": "account",
        "title": _("Change my password"),
        "trail": [(back, _("Account"))],
        "done": back,
        "form": form,
        "log_ins": max(0, len(log_ins_of(user)) - 1),
        "line": curl(request, "POST", "/me/password", query=reason_of(request), body=_PASSWORDS),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/own_password.html", context, status=status)


@page(judge=any_of_theirs)
def end_own_log_ins(request: HttpRequest, caller: Caller) -> HttpResponse:
    name = caller.user.username

    def end(unit: UnitOfWork) -> None:
        users.end_log_ins(unit, name)

    note = _("Ended at once, this one too: %(log_ins)s. API tokens go on.")
    proposal = Proposal(
        section="account",
        title=_("Log out everywhere"),
        apply_label=_("Log out everywhere"),
        action=end,
        trail=[(reverse("web:account"), _("Account"))],
        done=reverse("web:login"),
        curl=curl(request, "POST", "/me/end-log-ins", query=reason_of(request)),
        note=note % {"log_ins": log_ins_in_words(len(log_ins_of(caller.user)))},
        dangerous=True,
    )
    return confirm(request, caller, proposal)
