"""The only writer of model versions: what clients of a family get, which version is the newest, which serve no more.

Versions are no part of the configuration, but the alias that follows the newest is: it is moved in the same unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from django.db.models import Max, QuerySet
from django.utils import timezone
from msgspec import Meta

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound, Refused
from controlplane.core.nouns import PAGE_ROWS, page_of, some_of
from controlplane.fleet import models as rows
from controlplane.fleet.services import acts
from controlplane.fleet.services.aliases import ALIASES
from controlplane.fleet.services.engines import ENGINES
from controlplane.fleet.services.models import MODELS
from wire.canonical import Document
from wire.problems import Problem, pointer

NOUN = "model version"
VersionLabel = Annotated[
    str,
    f.Like(
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$(?!\n)")],
        "give 1 to 63 of letters, digits and . _ + -, the first a letter or digit",
    ),
]
# Given the name of a version's model: what keeps it, in words. Registered by the apps that know.
Keepers = list[Callable[[str], list[str]]]
# Of what is pinned to it, and what else leads requests to its pools.
pins: Keepers = []
other_routes: Keepers = []
# Given a version that is published: why clients may not get it, in words.
doubts: list[Callable[[rows.ModelVersion], list[str]]] = []


class NewVersionFields(f.Fields):
    """`family`: what clients call it, whichever is the newest. `model`: one that there is, of no other version."""

    family: f.ModelName
    version: VersionLabel
    model: f.ModelName


def describe(row: rows.ModelVersion) -> Document:
    return described([row])[0]


def described(found: Sequence[rows.ModelVersion]) -> list[Document]:
    """The public forms; which are the newest of their families is asked once for all."""
    newest = newest_among(found)
    return [_public(row, row.pk in newest) for row in found]


def newest_among(found: Sequence[rows.ModelVersion]) -> set[int]:
    """The ids of the newest version of each family that these are of, retired ones left out."""
    serving = rows.ModelVersion.objects.filter(family__in={row.family for row in found}, retired_at=None)
    return set(serving.values("family").annotate(last=Max("pk")).order_by().values_list("last", flat=True))


def _public(row: rows.ModelVersion, newest: bool) -> Document:
    return {
        "id": row.pk,
        "family": row.family,
        "version": row.version,
        "model": row.model.name,
        "newest": newest,
        "published_at": f.iso(row.published_at),
        "used_at": f.iso(row.used_at),
        "retired_at": f.iso(row.retired_at),
    }


def _record(row: rows.ModelVersion) -> Document:
    """Of the row itself, for the audit: what was seen of requests is no edit."""
    return {
        "family": row.family,
        "version": row.version,
        "model": row.model.name,
        "retired_at": f.iso(row.retired_at),
    }


def _key(row: rows.ModelVersion) -> str:
    return f"{row.family} {row.version}"


def _versions() -> QuerySet[rows.ModelVersion]:
    return rows.ModelVersion.objects.select_related("model")


def _newest(family: str) -> rows.ModelVersion | None:
    """The last that was published, retired ones left out."""
    return _versions().filter(family=family, retired_at=None).order_by("-pk").first()


def get(version_id: int) -> rows.ModelVersion:
    return _found(version_id, _versions())


def _lock(version_id: int) -> rows.ModelVersion:
    return _found(version_id, _versions().select_for_update(of=("self",)))


def _found(version_id: int, found: QuerySet[rows.ModelVersion]) -> rows.ModelVersion:
    row = found.filter(pk=version_id).first()
    if row is None:
        raise NotFound(f"there is no model version {version_id}")
    return row


def page(*, family: str = "", limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.ModelVersion], int | None]:
    """Versions, the one that was published last first; `after` is the last of the page before."""
    found = _versions()
    if family:
        found = found.filter(family=family)
    if after:
        found = found.filter(pk__lt=after)
    return page_of(found.order_by("-pk"), limit, lambda row: row.pk)


def is_newest(row: rows.ModelVersion) -> bool:
    return _newest(row.family) == row


def publish(unit: UnitOfWork, family: str, version: str, model: str) -> rows.ModelVersion:
    """Make a model the newest version of its family: whoever is not pinned gets it from this write on.

    Warns where nothing serves it yet, and of tenants that may not use it.
    Raises Refused with every problem, Conflict where the family has the version, or the model is one already.
    """
    asked = f.read(NewVersionFields, {"family": family, "version": version, "model": model})
    problems: list[Problem] = []
    found = MODELS.referenced("/model", asked.model, problems)
    if MODELS.find(asked.family) is not None:
        problems.append(Problem("/family", "unique", f"{asked.family!r} is the name of a model; give another"))
    if found is None or problems:
        raise f.refused(problems)
    taken = _versions().filter(family=asked.family, version=asked.version).first()
    if taken is not None:
        message = f"{_key(taken)!r} is published already, as model {taken.model.name!r}; give another version"
        raise Conflict(message, [Problem("/version", "unique", message)])
    other = _versions().filter(model=found).first()
    if other is not None:
        message = f"model {asked.model!r} is {_key(other)!r} already; make a model of its own for each version"
        raise Conflict(message, [Problem("/model", "unique", message)])
    row = rows.ModelVersion.objects.create(family=asked.family, version=asked.version, model=found)
    unit.record(NOUN, _key(row), None, _record(row))
    _point(unit, asked.family, asked.model)
    unit.warnings += [Problem("/model", "unready", words) for doubt in doubts for words in doubt(row)]
    return row


def _point(unit: UnitOfWork, family: str, model: str) -> None:
    """Let the family's name stand for this model."""
    if ALIASES.find(family) is None:
        ALIASES.create(unit, family, {"model": model})
    else:
        ALIASES.update(unit, family, {"model": model})


def delete(unit: UnitOfWork, version_id: int) -> None:
    """Take a version back; its model stays. Where it was the newest, the family follows the one before it.

    Raises Conflict where tenants are pinned to it, or engines are held out of service by its retirement.
    """
    row = _lock(version_id)
    _refuse_if_kept(row, pins, "deleted")
    held = rows.Engine.objects.filter(held_out_by=_holder(row)).order_by("name").values_list("name", flat=True)
    if held:
        message = f"it holds these engines out of service: {some_of(list(held))}; bring it back, or delete them first"
        raise Conflict(f"{_key(row)!r} cannot be deleted: {message}", code="in_use")
    before = _record(row)
    key, family, model = _key(row), row.family, row.model.name
    was_newest = is_newest(row)
    row.delete()
    unit.record(NOUN, key, before, None)
    alias = ALIASES.find(family)
    if was_newest and alias is not None and alias.model.name == model:
        following = _newest(family)
        if following is None:
            ALIASES.delete(unit, family)
        else:
            _point(unit, family, following.model.name)


def _refuse_if_kept(row: rows.ModelVersion, keepers: Keepers, verb: str) -> None:
    kept = [words for keeper in keepers for words in keeper(row.model.name)]
    if kept:
        raise Conflict(f"{_key(row)!r} cannot be {verb}: {some_of(kept)}", code="in_use")


def refuse_retirement(row: rows.ModelVersion) -> None:
    """Raise Conflict where the version is the newest, a tenant is pinned to it, or its pools serve another route."""
    if is_newest(row):
        message = f"{_key(row)!r} is the newest of its family, which is never retired; publish its successor first"
        raise Conflict(message, code="newest")
    _refuse_if_kept(row, pins, "retired")
    _refuse_if_kept(row, other_routes, "retired")


def retire(unit: UnitOfWork, version_id: int) -> rows.ModelVersion:
    """Let a passive version serve no more: its engines are drained, and stopped or slept where their nodes allow.

    Its model, pools and engines stay until somebody removes them. One that is retired already stays so. Raises Conflict
    (`refuse_retirement`).
    """
    row = _lock(version_id)
    if row.retired_at is not None:
        return row
    refuse_retirement(row)
    before = _record(row)
    row.retired_at = timezone.now()
    row.save(update_fields=["retired_at"])
    unit.record(NOUN, _key(row), before, _record(row))
    for engine in _engines_of(row):
        _end(unit, ENGINES.hold_out(unit, engine.name, _holder(row)))
    return row


def bring_back(unit: UnitOfWork, version_id: int) -> rows.ModelVersion:
    """Let a retired version serve again: its engines are woken or started where their nodes allow, and back in service.

    The family goes on to follow its newest, which is this one where no other is left. One that is not retired stays.
    """
    row = _lock(version_id)
    if row.retired_at is None:
        return row
    before = _record(row)
    row.retired_at = None
    row.save(update_fields=["retired_at"])
    unit.record(NOUN, _key(row), before, _record(row))
    for engine in _engines_of(row):
        _begin(unit, ENGINES.put_back(unit, engine.name, _holder(row)))
    if is_newest(row):
        _point(unit, row.family, row.model.name)
    return row


def _engines_of(row: rows.ModelVersion) -> list[rows.Engine]:
    return list(rows.Engine.objects.filter(pool__model=row.model).select_related("node").order_by("name"))


def _holder(row: rows.ModelVersion) -> str:
    return f"retired version {row.pk}"


def _end(unit: UnitOfWork, engine: rows.Engine) -> None:
    allowed = _allowed(engine)
    last = "stop" if "stop" in allowed else "sleep" if "sleep" in allowed and engine.kind == "vllm" else None
    for action in ("drain", last):
        if action is not None and action in allowed:
            _ask(unit, engine, action)


def _begin(unit: UnitOfWork, engine: rows.Engine) -> None:
    allowed = _allowed(engine)
    if engine.condition == "sleeping" and "wake" in allowed:
        _ask(unit, engine, "wake")
    elif engine.state == "down" and "start" in allowed:
        _ask(unit, engine, "start")


def _allowed(engine: rows.Engine) -> set[str]:
    """What its node's own policy lets be done to it."""
    return set() if engine.node is None else set(engine.node.allowed_acts.get(engine.name, []))


def _ask(unit: UnitOfWork, engine: rows.Engine, action: str) -> None:
    """One that cannot be asked for now is told, and holds up nothing: the engine takes no work anyway."""
    fields: dict[str, Any] = {"engine": engine.name, "action": action}
    try:
        acts.create(unit, fields)
    except Refused as refused:
        message = f"engine {engine.name!r} was not asked to {action}: {refused.detail}"
        unit.warnings.append(Problem(pointer("/engines", engine.name), "no_act", message))
