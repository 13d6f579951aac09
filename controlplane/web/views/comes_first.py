"""What stands in place of a form that has nothing to choose from yet: what to make first, and the way there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.curl import curl, reason_of


@dataclass(frozen=True)
class First:
    """What a form needs one of. `view` makes it, for `role` and above."""

    missing: Promise
    view: str
    label: Promise
    role: Role


POOL = First(_("There is no pool yet."), "web:new_pool", _("New pool"), Role.OPERATOR)
MODEL = First(_("No model yet."), "web:new_model", _("New model"), Role.ADMIN)


@dataclass(frozen=True)
class Asked:
    """The form: where it belongs, `why` it needs one of them, and the REST call of it, which needs one too."""

    section: str
    title: str
    trail: list[tuple[str, str]]
    why: str
    call: tuple[str, str]
    body: Mapping[str, Any]


def comes_first(request: HttpRequest, caller: Caller, first: First, asked: Asked) -> HttpResponse:
    context = {
        "section": asked.section,
        "title": asked.title,
        "trail": asked.trail,
        "why": asked.why,
        "first": first,
        "may_make_it": caller.role.covers(first.role),
        "call_line": curl(request, *asked.call, query=reason_of(request), body=asked.body),
    }
    return render(request, "web/comes_first.html", context)
