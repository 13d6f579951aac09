"""A secret that is made and shown once: a tenant's key, a join token, a receiver's signing secret."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.security import Caller
from controlplane.web.forms.common import SecretForm
from controlplane.web.writing import MadeAlready, make_secret


def secret_page(
    request: HttpRequest,
    caller: Caller,
    form: SecretForm,
    make: Callable[[UnitOfWork], str],
    template: str,
    frame: dict[str, Any],
    shown: Callable[[UnitOfWork], dict[str, Any]],
) -> HttpResponse:
    """The form, and once it was sent the secret, which is shown this once, with what `shown` tells beside it.

    `frame` holds section, title, trail and `done`, the page to go on to; and what `template` needs.
    """
    context = {**frame, "form": form}
    if form.is_valid():
        try:
            unit, secret = make_secret(caller, form, make)
        except MadeAlready as refused:
            return render(request, "web/made_already.html", {**context, "again": request.path}, status=refused.status)
        except Refused as refused:
            form.take_refusal(refused)
        else:
            return render(request, "web/secret.html", {**context, "secret": secret, **shown(unit)})
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, template, context, status=status)
