"""A write from a page, in two steps: rehearsed and shown as a diff, then carried out with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane.core.changes import UnitOfWork, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.security import Caller
from controlplane.web import differences
from controlplane.web.differences import Difference

Action = Callable[[UnitOfWork], Any]


@dataclass(frozen=True)
class Rehearsal:
    """What a write would do. `digest` names it, so that carrying out can tell whether it still does that."""

    lines: list[Difference]
    digest: str
    reaches_targets: bool


class ChangedMeanwhile(Conflict):
    """Between review and apply someone else wrote: the same form would now do something else than was shown."""


def rehearse(caller: Caller, action: Action) -> Rehearsal:
    """Run `action` with every check and keep nothing. Raises Refused."""
    with unit_of_work(caller.actor, "rehearsal", dry_run=True) as unit:
        action(unit)
    return Rehearsal(differences.of_changes(unit.changes), differences.digest(unit.changes), bool(unit.patch))


def carry_out(caller: Caller, reason: str, digest: str, action: Action) -> UnitOfWork:
    """Run `action` and keep it, if it does what was rehearsed. Raises Refused; ChangedMeanwhile where it does not."""
    with unit_of_work(caller.actor, reason) as unit:
        action(unit)
        if differences.digest(unit.changes) != digest:
            raise ChangedMeanwhile("someone changed this meanwhile; below is what applying would do now")
    return unit
