"""Edits and commands of a lever, carried out through the services that every other write goes through.

What an edit replaced is kept field by field, so that exactly that can be taken back, and nothing that others wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Forbidden, Refused
from controlplane.core.fields import Fields, refuse_if
from controlplane.core.models import Role
from controlplane.core.nouns import Noun
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS, acts
from controlplane.routing.services import ROUTES
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS, TENANTS
from wire.canonical import Document
from wire.problems import Problem, pointer

CORDONED = "cordoned"


@dataclass(frozen=True)
class Kind:
    """What a lever may edit: the noun, and who may write it by REST."""

    noun: Noun[Any]
    role: Role = Role.OPERATOR


# By the names that REST has for them.
KINDS = {
    "pools": Kind(POOLS),
    "tenants": Kind(TENANTS),
    "priority-classes": Kind(PRIORITY_CLASSES),
    "routes": Kind(ROUTES),
    "models": Kind(MODELS, Role.ADMIN),
    "session-limits": Kind(SESSION_LIMITS),
    "cache-policies": Kind(CACHE_POLICIES),
    "engines": Kind(ENGINES),
    "nodes": Kind(NODES),
}


def check_role(unit: UnitOfWork, edits: Iterable[Document]) -> None:
    """Raise Forbidden where a person's role may not write what an edit writes. The program itself may."""
    for edit in edits:
        needed = KINDS[edit["noun"]].role
        if unit.actor.role is not None and not unit.actor.role.covers(needed):
            raise Forbidden(
                f"this lever changes {edit['noun']}, which needs the role {needed.value}; yours is "
                f"{unit.actor.role.value}"
            )


def write(unit: UnitOfWork, edits: Sequence[Document]) -> list[Document]:
    """Make the edits; answers what each replaced. Raises Refused with what is wrong at which edit."""
    return [_write(unit, place, edit) for place, edit in enumerate(edits)]


def _write(unit: UnitOfWork, place: int, edit: Document) -> Document:
    noun, key, changes = KINDS[edit["noun"]].noun, edit["key"], edit["changes"]
    told = {"noun": edit["noun"], "key": key, "create": edit["create"]}
    with _at(pointer("/edits", place)):
        if edit["create"]:
            made = noun.create(unit, key, changes)
            return {**told, "before": None, "after": noun.describe(made)}
        before = picked(noun.fields, noun.describe(noun.lock(key)), changes)
        _update(unit, edit["noun"], key, changes)
        return {**told, "before": before, "after": picked(noun.fields, noun.describe(noun.get(key)), changes)}


def _update(unit: UnitOfWork, name: str, key: str, changes: Mapping[str, Any]) -> None:
    """A cordon is no field that REST patches, but a call of its own."""
    rest = {field: value for field, value in changes.items() if field != CORDONED}
    if CORDONED in changes:
        switches: dict[tuple[str, bool], Callable[[UnitOfWork, str], Any]] = {
            ("nodes", True): NODES.cordon,
            ("nodes", False): NODES.uncordon,
            ("engines", True): ENGINES.cordon,
            ("engines", False): ENGINES.uncordon,
        }
        switches[name, bool(changes[CORDONED])](unit, key)
    if rest:
        KINDS[name].noun.update(unit, key, rest)


def take_back(unit: UnitOfWork, replaced: Sequence[Document]) -> None:
    """Put back what the edits replaced, the last one first. The caller has seen that nobody changed it since."""
    for place, edit in reversed(list(enumerate(replaced))):
        with _at(pointer("/edits", place)):
            if edit["create"]:
                KINDS[edit["noun"]].noun.delete(unit, edit["key"])
            else:
                _update(unit, edit["noun"], edit["key"], edit["before"])


def ask(unit: UnitOfWork, commands: Sequence[Document]) -> list[str]:
    """Ask agents for the acts; answers their ids. Raises Refused with what is wrong at which command."""
    asked = []
    for place, command in enumerate(commands):
        what, _, name = command["subject"].partition("/")
        with _at(pointer("/commands", place)):
            fields = {what: name, "action": command["action"], "arguments": command["arguments"]}
            asked.append(acts.create(unit, fields).act_id)
    return asked


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Let a refusal say at which edit or command it is."""
    try:
        yield
    except Refused as refused:
        refused.problems = [
            Problem(path + problem.path.rstrip("/"), problem.rule, problem.message) for problem in refused.problems
        ]
        raise


def picked(kind: type[Fields], row: Document, like: Mapping[str, Any]) -> Document:
    """The fields of a public form that `like` gives; of a group of fields only those that it gives of it."""
    return {
        name: {part: row[name].get(part) for part in value} if is_group(kind, name, value) else row.get(name)
        for name, value in like.items()
    }


def is_group(kind: type[Fields], name: str, value: Any) -> bool:
    """Whether REST merges what is given for the field (core.fields.merged); else it is replaced whole."""
    field = kind.model_fields.get(name)
    annotation = None if field is None else field.annotation
    return isinstance(value, dict) and isinstance(annotation, type) and issubclass(annotation, Fields)


def places_of(noun: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where in a public form the fields stand: (`queue_cap`,), (`breaker`, `window_ms`)."""
    for name, value in fields.items():
        if is_group(KINDS[noun].noun.fields, name, value):
            yield from ((name, part) for part in value)
        else:
            yield (name,)


def at_place(document: Mapping[str, Any] | None, place: Sequence[str]) -> Any:
    """What stands there; None where there is nothing."""
    value: Any = document
    for part in place:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def wrong_with(edits: Iterable[Document], commands: Iterable[Document]) -> list[Problem]:
    """Edits of what no lever may edit, and commands to nobody: a detector's fault, which must not stop a round."""
    problems = []
    for place, edit in enumerate(edits):
        if edit["noun"] not in KINDS:
            problems.append(Problem(pointer("/edits", place), "unknown", f"{edit['noun']!r} is nothing to edit"))
    for place, command in enumerate(commands):
        if command["subject"].partition("/")[0] not in ("engine", "node"):
            problems.append(Problem(pointer("/commands", place), "unknown", f"{command['subject']!r} has no agent"))
    return problems


def refuse_wrong(edits: Iterable[Document], commands: Iterable[Document]) -> None:
    refuse_if(wrong_with(edits, commands))
