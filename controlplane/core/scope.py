"""What narrows a caller below the role: the tenants that a person is limited to, the calls that a token may make.

A call is closed to people of some tenants until its route says what they may reach of it (`Needs.within`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from importlib import import_module
from inspect import unwrap
from typing import Annotated, Any, TypeVar

from django.conf import settings
from django.db import models
from django.http import HttpRequest, HttpResponse
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork, sections
from controlplane.core.errors import Forbidden, NotFound
from controlplane.core.nouns import some_of
from wire.canonical import Document
from wire.problems import Problem, pointer

RowT = TypeVar("RowT", bound=models.Model)
# Names of tenants; None: of the whole fleet.
Tenants = frozenset[str] | None
# Given the tenants of a caller who is limited to some, and the parameters in the call's path. Raises NotFound.
Judge = Callable[[frozenset[str], Mapping[str, Any]], None]

# Of what Prometheus' HTTP API serves, which is no part of the OpenAPI page.
METRICS = "metrics"
TENANTS_OF_A_PERSON_MAX = 100
TenantNames = Annotated[f.Names, Field(min_length=1, max_length=TENANTS_OF_A_PERSON_MAX)]
_TOLD_OF_CONVERGENCE = ("revision", "targets", "applied", "waited_ms")
# Every group of calls: the tags of the OpenAPI page, told by `note_tags` when the site's addresses are read.
known_scopes: set[str] = {METRICS}
# Nouns beside keys whose public form tells the `tenant` that they are of, so that its people may write theirs.
of_a_tenant: set[str] = set()


def some(names: Iterable[str] | None) -> Tenants:
    return None if names is None else frozenset(names)


def both(one: Tenants, other: Tenants) -> Tenants:
    """What two bounds leave."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def within(rows: models.QuerySet[RowT], column: str, tenants: Tenants) -> models.QuerySet[RowT]:
    """The rows whose `column` names one of the tenants."""
    return rows if tenants is None else rows.filter(**{f"{column}__in": sorted(tenants)})


def any_of_theirs(tenants: frozenset[str], path: Mapping[str, Any]) -> None:
    """The judge of calls that themselves leave out what is of other tenants."""


def own_tenant(tenants: frozenset[str], path: Mapping[str, Any]) -> None:
    """The judge of calls whose path holds a tenant's `name`: another's is as unknown as one that does not exist."""
    if path["name"] not in tenants:
        raise NotFound(f"there is no tenant {path['name']!r}")


def tenant_scope(tenants: frozenset[str]) -> Forbidden:
    """Why a call is closed to people of some tenants."""
    return Forbidden(
        f"you are limited to {some_of(sorted(tenants)) or 'no tenant'}: their limits, keys, decisions, sketches and "
        "audit are open to you, and this is not; ask someone of the whole fleet",
        code="tenant_scope",
    )


def check_token_scope(scopes: Collection[str] | None, tags: Collection[str]) -> None:
    """Raise Forbidden where a token of these scopes (None: all) may not make calls of these tags."""
    if scopes is None or not set(scopes).isdisjoint(tags):
        return
    needed = " or ".join(repr(tag) for tag in tags)
    raise Forbidden(
        f"this needs the scope {needed}; this token has {some_of(sorted(scopes))}: make one with that scope",
        code="token_scope",
    )


def check_scopes(scopes: Iterable[str] | None) -> None:
    """Raise Refused where a scope names no group of calls."""
    # Read already where calls are answered; not yet where the shell makes a token.
    import_module(settings.ROOT_URLCONF)
    f.refuse_if(
        [
            Problem(pointer("/scopes", scope), "unknown", f"no such scope; there are {', '.join(sorted(known_scopes))}")
            for scope in scopes or ()
            if scope not in known_scopes
        ]
    )


def warn_of_unknown(unit: UnitOfWork, tenants: Iterable[str] | None) -> None:
    """A person may be limited to a tenant that is made later; more often its name is mistyped."""
    section = sections.get("tenants")
    for name in tenants or ():
        if section is not None and section.compile(name) is None:
            message = f"there is no tenant {name!r} now; nothing is open to its people until it is made"
            unit.warnings.append(Problem(pointer("/tenants", name), "reference", message))


def told_of_convergence(tenants: Tenants, answer: Document) -> Document:
    """How far a change is; which targets lack it, and why, is told to people of the whole fleet."""
    return answer if tenants is None else {name: answer[name] for name in _TOLD_OF_CONVERGENCE}


def told_of_warnings(tenants: Tenants, warnings: Iterable[Problem]) -> list[Problem]:
    """Warnings, and refusals for what others do, may speak of pools and of others; people of some tenants are told what
    is at theirs.
    """
    return [one for one in warnings if tenants is None or _is_at(one.path, tenants)]


def _is_at(path: str, tenants: frozenset[str]) -> bool:
    return any(f"{path}/".startswith(f"{pointer('/tenants', name)}/") for name in tenants)


View = Callable[..., HttpResponse]


def note_tags(run: View) -> View:
    """Tell each call's judge the tags of the call: a decorator of ninja's in the mode "view", which runs before it."""
    # What ninja gives is a method of the operation, as other decorators have wrapped it.
    tags = tuple(unwrap(run).__self__.tags or ())
    known_scopes.update(tags)

    @wraps(run)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.tags_of_call = tags  # type: ignore[attr-defined]
        return run(request, *args, **kwargs)

    return answer


def tags_of(request: HttpRequest) -> tuple[str, ...]:
    """The tags of the REST call. None, which no token of some scopes may call, where nothing has told them."""
    tags: tuple[str, ...] = getattr(request, "tags_of_call", ())
    return tags
