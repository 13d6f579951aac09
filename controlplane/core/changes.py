"""The unit of work: every write is one, with an actor, a reason, a transaction and an audit entry.

    with unit_of_work(actor, reason, dry_run=dry_run) as unit:
        tenants.services.update(unit, "acme", {"tpm_limit": 60_000})

First the registered openings run: one of them lets one unit in at a time, so units never wait for each other's rows.
When the block ends, still inside the transaction, the registered steps run in order: they compile what was touched,
check what it references and may refuse the whole. A dry run does all of it and keeps nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel

from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry, Role
from wire.canonical import Document, NotCanonical, check_canonical
from wire.problems import Problem

REASON_MAX_CHARACTERS = 500


@dataclass(frozen=True)
class Actor:
    """Who acts: a person in the browser, a token's script, a target, the program itself, or the shell.

    `tenants`: those that the actor is limited to (see core.scope); None: may act on the whole fleet. `role`: a
    person's, at most that of the token; None: no person. `entrusted`: an admin has limited the person, not just the
    token, to tenants, and so has put these into the person's hands.
    """

    kind: Literal["user", "token", "target", "system", "shell"]
    name: str
    address: str = ""
    tenants: frozenset[str] | None = None
    role: Role | None = None
    entrusted: bool = False


SYSTEM = Actor("system", "headworks")


@dataclass(frozen=True)
class Change:
    """One row changed. `before` and `after` are its public form (no secrets); None: it did not or does not exist."""

    noun: str
    key: str
    before: Document | None
    after: Document | None

    @property
    def action(self) -> str:
        return "create" if self.before is None else "delete" if self.after is None else "update"


@dataclass
class UnitOfWork:
    """What one write has done so far. Services call `record` and `touch`; nothing else does."""

    actor: Actor
    reason: str
    dry_run: bool
    change_id: uuid.UUID = field(default_factory=uuid.uuid4)
    changes: list[Change] = field(default_factory=list)
    # Parts of the configuration that must be compiled anew: (section, key), in the order first touched.
    touched: dict[tuple[str, str], None] = field(default_factory=dict)
    # Set by the compile step: the merge patch that the touched parts bring to the configuration.
    patch: dict[str, Any] = field(default_factory=dict)
    # What the steps find questionable but do not refuse.
    warnings: list[Problem] = field(default_factory=list)
    # Called last, in the transaction: what keeps the answer of the write with the write.
    finishing: list[Callable[[], None]] = field(default_factory=list)

    def record(self, noun: str, key: str, before: Document | None, after: Document | None) -> None:
        """Note a changed row for the audit. A write that changes nothing is not noted."""
        if before != after:
            self.changes.append(Change(noun, key, before, after))

    def touch(self, section: str, key: str) -> None:
        """Say that a part of the configuration may have changed."""
        self.touched[section, key] = None


# A name → what takes in whatever the block about it is refused for.
Gathering = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Written:
    """How people write the entries of a section: REST's fields, without null and without what is so by default.

    of_content: that form of an entry of the configuration.
    check: that form of what somebody gives under a name. Raises Refused with every problem.
    write_many: make the rows of these names such that they are written so (None: remove), in this order. What the
        noun's own writes would raise of one goes through what is given for its name, and the others are written.
    fields: the description of what may be given.
    """

    of_content: Callable[[Document], Document]
    check: Callable[[str, Any], Document]
    write_many: Callable[[UnitOfWork, Mapping[str, Document | None], Gathering], None]
    fields: type[BaseModel]


@dataclass(frozen=True)
class Section:
    """One map of the configuration. A lower app registers it; `configs` calls it and need not know the app.

    compile: the content of one entry as it stands in the database, or None where there is none.
    compile_many: the same of many at once, of those that there are; for sections that can be large.
    keys: all keys there are, for a compile from nothing.
    restore: make the rows such that `compile(key)` gives this content again (None: remove), for rollback and
        import. Sections that hold state rather than configuration (keys, engines, cordons, overrides) have none.
    """

    name: str
    compile: Callable[[str], Document | None]
    keys: Callable[[], list[str]]
    restore: Callable[[UnitOfWork, str, Document | None], None] | None = None
    compile_many: Callable[[Collection[str]], Mapping[str, Document]] | None = None
    # Fields of an entry that are state: no edit of a person's, and `restore` leaves them as they are.
    state: frozenset[str] = frozenset()
    # Of sections that people set: their part of the document of the whole configuration.
    written: Written | None = None
    # Sections are restored and written in this order where they reference each other (removals in the opposite one).
    order: int = 0

    def is_edit(self, entry: Document | None) -> bool:
        """Whether the patch of an entry (None: it is removed) changes more than state."""
        return entry is None or bool(entry.keys() - self.state)


sections: dict[str, Section] = {}
_openings: list[Callable[[], None]] = []
_steps: list[Callable[[UnitOfWork], None]] = []
# (change_id, seconds to wait for) → where the change stands at the targets. Registered by `configs`.
Waiter = Callable[[uuid.UUID, float], Document]
waiter: list[Waiter] = []


def register_section(section: Section) -> None:
    sections[section.name] = section


def register_opening(opening: Callable[[], None]) -> None:
    """Add what runs first in every unit of work, inside its transaction, before any row is read or locked."""
    if opening not in _openings:
        _openings.append(opening)


def register_step(step: Callable[[UnitOfWork], None]) -> None:
    """Add a step that runs at the end of every unit of work, inside its transaction."""
    if step not in _steps:
        _steps.append(step)


@contextmanager
def unit_of_work(actor: Actor, reason: str, *, dry_run: bool = False) -> Iterator[UnitOfWork]:
    """Run a write. Raises Refused, with nothing stored, where the reason is missing or a step refuses."""
    reason = reason.strip()
    if not 1 <= len(reason) <= REASON_MAX_CHARACTERS:
        raise Refused(
            f"every write needs a reason of 1 to {REASON_MAX_CHARACTERS} characters",
            [Problem("/reason", "length", f"give 1 to {REASON_MAX_CHARACTERS} characters")],
        )
    try:
        check_canonical(reason)
    except NotCanonical as error:
        raise Refused(f"the reason: {error.rule}", [Problem("/reason", "characters", error.rule)]) from error
    with transaction.atomic():
        for opening in _openings:
            opening()
        unit = UnitOfWork(actor, reason, dry_run)
        yield unit
        for step in _steps:
            step(unit)
        if not dry_run:
            _write_audit(unit)
        for finish in unit.finishing:
            finish()
        if dry_run:
            transaction.set_rollback(True)


def _write_audit(unit: UnitOfWork) -> None:
    now = timezone.now()
    AuditEntry.objects.bulk_create(
        AuditEntry(
            change_id=unit.change_id,
            at=now,
            actor_kind=unit.actor.kind,
            actor=unit.actor.name,
            address=unit.actor.address,
            noun=change.noun,
            key=change.key,
            action=change.action,
            before=change.before,
            after=change.after,
            reason=unit.reason,
            touches_config=bool(unit.patch),
        )
        for change in unit.changes
    )
