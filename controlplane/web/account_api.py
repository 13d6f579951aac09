"""REST of one's own account beside `/me`: the log-ins that are open, and one's own password."""

from __future__ import annotations

import math
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router

from controlplane.core import fields as f
from controlplane.core import users
from controlplane.core.errors import Refused, Throttled
from controlplane.core.fields import ShownAs, iso
from controlplane.core.rest import Page
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import address_of, caller_in, viewer
from controlplane.core.sessions import LogIn, open_log_ins
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.web.own_password import TooManyGuesses, WrongPassword, prove
from wire.canonical import Document
from wire.problems import Problem

router = Router(tags=["users"])
own = viewer.within(any_of_theirs)


class OwnPassword(f.Fields):
    """`current`: the present one; `password`: the new one."""

    current: users.Password
    password: users.Password


OwnPasswordBody = Annotated[dict[str, Any], ShownAs(OwnPassword), Body()]


@router.get("/me/log-ins", auth=own, response=Page, summary="List your open log-ins")
def list_own_log_ins(request: HttpRequest) -> Page:
    """In browsers, that of the newest page first. `address`: from where each was begun."""
    found = open_log_ins().get(caller_in(request).user.pk, [])
    return Page(items=[_shown(each) for each in found], next=None)


@router.post("/me/password", auth=own, response=WriteAnswer, summary="Change your own password")
def change_own_password(request: HttpRequest, options: Options, body: OwnPasswordBody) -> WriteAnswer:
    """Ends your log-ins in all browsers; API tokens go on. Wrong guesses of `current` count as those at the log-in."""
    user, asked = caller_in(request).user, f.read(OwnPassword, body)
    users.refuse_of_provider(user)
    try:
        prove(user, address_of(request), asked.current)
    except WrongPassword:
        raise f.refused([Problem("/current", "password", "this is not your password")]) from None
    except TooManyGuesses as many:
        raise _too_many(many) from None
    changes = {"password": asked.password}
    return perform(request, options, lambda unit: users.describe(users.update(unit, user.username, changes)))


def _too_many(many: TooManyGuesses) -> Refused:
    seconds = math.ceil(many.wait.total_seconds())
    return Throttled("too many wrong passwords of this name or from this address", retry_after_seconds=seconds)


def _shown(each: LogIn) -> Document:
    """Without its key, which is as good as the log-in itself."""
    return {
        "address": each.address,
        "begun_at": iso(each.begun_at),
        "last_page_at": iso(each.seen_at),
        "ends_at": iso(each.ends_at),
    }
