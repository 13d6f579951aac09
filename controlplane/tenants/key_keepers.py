"""Who keeps tenants' keys: a step of every unit of work, so the rule of every door; pages ask it what to offer.

A key lets its holder in, so an admin hands it out. An admin who makes people operators of some tenants hands them those
tenants' keys to keep. Any other operator may do what a leak at night needs: block a key, or bring its end forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controlplane.core.changes import Actor, Change, UnitOfWork
from controlplane.core.errors import Forbidden
from controlplane.core.models import Role
from controlplane.tenants.services import keys
from wire.canonical import Document
from wire.problems import Problem, pointer

_RIGHT = "ask an admin, or an operator whom an admin has limited to the tenant"
_OF_OPERATORS = "an operator of the whole fleet may block a key and bring its end forward"


def keeper(actor: Actor) -> Role:
    """The least role with which the actor keeps keys.

    Tenants that a token alone is limited to hand out nothing: whoever has the role operator can make such a token.
    """
    return Role.OPERATOR if actor.entrusted else Role.ADMIN


def may_keep(actor: Actor) -> bool:
    """True also of what is no person: the shell and the program itself."""
    return actor.role is None or actor.role.covers(keeper(actor))


def leave_to_keepers(unit: UnitOfWork) -> None:
    """Raise Forbidden (`role`) where who keeps no keys has done more than to let some end."""
    if unit.actor.role is None or may_keep(unit.actor):
        return
    problems = [problem for change in unit.changes if change.noun == keys.NOUN for problem in _beyond(change)]
    if problems:
        needed, yours = keeper(unit.actor).value, unit.actor.role.value
        detail = f"this change of a key needs the role {needed}; yours is {yours}: {_OF_OPERATORS}; for more {_RIGHT}"
        raise Forbidden(detail, problems, code="role")


def _beyond(change: Change) -> Iterator[Problem]:
    """What of a changed key is a keeper's to do."""
    if change.before is None:
        yield Problem("/", "role", f"keys are made and rotated by their keepers; {_RIGHT}")
    elif change.after is None:
        message = f"key {change.key} would be deleted, also where its tenant is; block it instead, or {_RIGHT}"
        yield Problem("/", "role", message)
    else:
        for field in keys.KeyFields.model_fields:
            if change.before[field] != change.after[field] and not _ends(field, change.after, change.before):
                yield Problem(pointer("/", field), "role", f"{_OF_OPERATORS}, not change this; {_RIGHT}")


def _ends(field: str, after: Document, before: Document) -> bool:
    """The key lets in no more, or for a shorter time, than it did."""
    if field == "blocked":
        return bool(after[field])
    if field != "expires_at" or after[field] is None:
        return False
    return before[field] is None or datetime.fromisoformat(after[field]) < datetime.fromisoformat(before[field])
