"""A write from a page: rehearsed and shown as a diff, then carried out; or, where it makes a secret, once a form."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.models import AuditEntry, Role
from controlplane.core.scope import told_of_warnings
from controlplane.core.security import Caller
from controlplane.web import differences
from controlplane.web.differences import Shown
from controlplane.web.forms.common import SecretForm
from controlplane.web.shown import staging
from wire.canonical import Document
from wire.problems import Problem

Action = Callable[[UnitOfWork], Any]


@dataclass(frozen=True)
class Rehearsal:
    """What a write would do. `digest` names it, so that carrying out can tell whether it still does that.

    `warnings`: what it may do, but is worth a second look. `document_patch`: the same change as a stage could hold it,
    where the caller may begin one and the change is of the configuration alone; else empty. `patch`: what it changes of
    the configuration as targets get it.
    """

    shown: Shown
    digest: str
    warnings: list[Problem]
    document_patch: Document
    patch: Document


class ChangedMeanwhile(Conflict):
    """Between review and apply someone else wrote: the same form would now do something else than was shown."""


class MadeAlready(Conflict):
    """This form was carried out before: its answer was loaded anew, or its button pressed twice."""


def rehearse(caller: Caller, action: Action) -> Rehearsal:
    """Run `action` with every check and keep nothing. Raises Refused."""
    # A change may show it, as a cordon does.
    with unit_of_work(caller.actor, _("the reason that you give"), dry_run=True) as unit:
        action(unit)
        may_stage = caller.role.covers(Role.ADMIN) and caller.tenants is None
        document_patch = staging.document_patch(unit) if may_stage else {}
    shown = differences.shortened(differences.of_changes(unit.changes))
    warnings = told_of_warnings(caller.tenants, unit.warnings)
    return Rehearsal(shown, differences.digest(unit.changes), warnings, document_patch, unit.patch)


def carry_out(
    caller: Caller, reason: str, digest: str, action: Action, change_id: uuid.UUID | None = None
) -> UnitOfWork:
    """Run `action` and keep it, if it does what was rehearsed. Raises Refused; ChangedMeanwhile where it does not.

    `change_id` becomes the name of the change, which is made once. Raises MadeAlready.
    """
    with unit_of_work(caller.actor, reason) as unit:
        if change_id is not None:
            _name_once(unit, change_id)
        action(unit)
        if differences.digest(unit.changes) != digest:
            raise ChangedMeanwhile("someone changed this meanwhile; below is what applying would do now")
    return unit


@contextmanager
def once(caller: Caller, reason: str, change_id: uuid.UUID) -> Iterator[UnitOfWork]:
    """A write from a form without a review, as the change that the form names. Raises Refused; MadeAlready."""
    with unit_of_work(caller.actor, reason) as unit:
        _name_once(unit, change_id)
        yield unit


def make_secret(caller: Caller, form: SecretForm, make: Callable[[UnitOfWork], str]) -> tuple[UnitOfWork, str]:
    """Run `make`, which gives a secret, as the change that the form names. The form is valid.

    Raises Refused; MadeAlready where there is that change.
    """
    with once(caller, form.cleaned_data["reason"], form.cleaned_data["form_id"]) as unit:
        secret = make(unit)
    return unit, secret


def is_made(change_id: uuid.UUID | None, *, published: bool = False) -> bool:
    """Whether there is this change; `published`: one of the configuration, whose way to the targets is followed."""
    if change_id is None:
        return False
    made = AuditEntry.objects.filter(change_id=change_id)
    return (made.filter(touches_config=True) if published else made).exists()


def _name_once(unit: UnitOfWork, change_id: uuid.UUID) -> None:
    """One unit of work runs at a time, so of the same form sent twice at once one is carried out."""
    if is_made(change_id):
        raise MadeAlready("this form was carried out already")
    unit.change_id = change_id
