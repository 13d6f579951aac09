"""Calls of LiteLLM's proxy that scripts use to manage teams and keys, on tenants and their keys.

A team is a tenant, a key one of its keys. What LiteLLM takes and Headworks would not hold to is refused by name
(`unheld`). Source: LiteLLM's API page, /key/* and /team/*; docs/litellm-scripts.md has each field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI

from controlplane.api.failed import failure
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound, Refused, TooLarge
from controlplane.core.nouns import PAGE_ROWS_MAX
from controlplane.core.rest import json_answer
from controlplane.core.scope import any_of_theirs, note_tags
from controlplane.core.security import caller_in, operator, viewer
from controlplane.core.writes import WriteAnswer, WriteOptions, perform
from controlplane.litellm_admin import bodies, unheld
from controlplane.litellm_admin.answers import error_form, key_form, team_form
from controlplane.litellm_admin.keys import find_by_alias, find_key
from controlplane.tenants import services
from controlplane.tenants.models import Tenant
from wire.canonical import Document
from wire.problems import Problem

log = logging.getLogger(__name__)
DEFAULT_REASON = "by a LiteLLM-shaped call"
# The header by which LiteLLM's clients say on whose behalf they call.
CHANGED_BY = "litellm-changed-by"

api = NinjaAPI(title="LiteLLM-shaped calls", urls_namespace="litellm", docs_url=None, openapi_url=None)
api.add_decorator(note_tags, mode="view")
reader, writer = viewer.within(any_of_theirs), operator.within(any_of_theirs)
KEYS: dict[str, Any] = {"tags": ["keys"]}
TEAMS: dict[str, Any] = {"tags": ["tenants"]}


@api.post("/key/generate", auth=writer, **KEYS)
def generate_key(request: HttpRequest) -> HttpResponse:
    """A new key of a team, shown this once."""
    body = unheld.without_unheld(bodies.body_of(request), unheld.OF_NEW_KEYS)
    key = f.read(bodies.NewKey, body)
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        tenant = _own_team(request, key.team_id)
        row, secret = services.create_key(unit, tenant.name, bodies.key_fields(key, tenant))
        secrets.append(secret)
        return services.describe_key(row)

    answer = _write(request, act, secret=secrets.pop)
    return _answer({"key": answer.secret, **_key_form(answer.item)})


@api.post("/key/update", auth=writer, **KEYS)
def update_key(request: HttpRequest) -> HttpResponse:
    key = f.read(bodies.ChangedKey, unheld.without_unheld(bodies.body_of(request), unheld.OF_KEYS))

    def act(unit: UnitOfWork) -> Document:
        row = find_key(key.key, caller_in(request).tenants)
        if key.team_id not in (None, row.tenant.name):
            says = f"a key stays with its team, {row.tenant.name}: make a new key for the other"
            f.refuse_if([Problem("/team_id", "not_held", says)])
        return services.describe_key(services.update_key(unit, row.pk, bodies.key_fields(key, row.tenant)))

    form = _key_form(_write(request, act).item)
    return _answer({"key": form["token"], **form})


@api.post("/key/block", auth=writer, **KEYS)
def block_key(request: HttpRequest) -> HttpResponse:
    return _set_blocked(request, blocked=True)


@api.post("/key/unblock", auth=writer, **KEYS)
def unblock_key(request: HttpRequest) -> HttpResponse:
    return _set_blocked(request, blocked=False)


def _set_blocked(request: HttpRequest, *, blocked: bool) -> HttpResponse:
    key = f.read(bodies.OneKey, bodies.body_of(request))

    def act(unit: UnitOfWork) -> Document:
        row = find_key(key.key, caller_in(request).tenants)
        return services.describe_key(services.update_key(unit, row.pk, {"blocked": blocked}))

    return _answer(_key_form(_write(request, act).item))


@api.post("/key/delete", auth=writer, **KEYS)
def delete_keys(request: HttpRequest) -> HttpResponse:
    """All of them or, where one is not there, none."""
    wanted = f.read(bodies.SomeKeys, bodies.body_of(request))
    keys, aliases = wanted.keys or [], wanted.key_aliases or []
    if not keys and not aliases:
        f.refuse_if([Problem("/keys", "required", "give `keys` or `key_aliases`")])

    def act(unit: UnitOfWork) -> None:
        tenants = caller_in(request).tenants
        rows = [find_key(text, tenants) for text in keys] + [find_by_alias(alias, tenants) for alias in aliases]
        for key_id in dict.fromkeys(row.pk for row in rows):
            services.delete_key(unit, key_id)

    _write(request, act)
    return _answer({"deleted_keys": [*keys, *aliases]})


@api.get("/key/info", auth=reader, **KEYS)
def key_info(request: HttpRequest) -> HttpResponse:
    key = f.read(bodies.OneKey, {"key": _asked(request, "key")})
    row = find_key(key.key, caller_in(request).tenants)
    form = key_form(services.describe_key(row), services.describe(row.tenant))
    return _answer({"key": form["token"], "info": form})


@api.post("/team/new", auth=operator, **TEAMS)
def new_team(request: HttpRequest) -> HttpResponse:
    name, fields = bodies.new_team(bodies.body_of(request))
    answer = _write(request, lambda unit: services.describe(services.create(unit, name, fields)))
    return _answer(team_form(answer.item or {}))


@api.post("/team/update", auth=writer, **TEAMS)
def update_team(request: HttpRequest) -> HttpResponse:
    name, fields = bodies.changed_team(bodies.body_of(request))

    def act(unit: UnitOfWork) -> Document:
        _own_team(request, name)
        return services.describe(services.update(unit, name, fields))

    return _answer({"team_id": name, "data": team_form(_write(request, act).item or {})})


@api.post("/team/delete", auth=operator, **TEAMS)
def delete_teams(request: HttpRequest) -> HttpResponse:
    """With their keys. All of them or, where one is not there or in use, none."""
    names = f.read(bodies.SomeTeams, bodies.body_of(request)).team_ids

    def act(unit: UnitOfWork) -> None:
        for name in dict.fromkeys(names):
            services.delete(unit, name)

    _write(request, act)
    return _answer({"deleted_teams": names})


@api.get("/team/info", auth=reader, **TEAMS)
def team_info(request: HttpRequest) -> HttpResponse:
    """The team and its first keys; `next` is where /api/v1/tenants/NAME/keys goes on, null where these are all."""
    name = _asked(request, "team_id")
    tenant = _own_team(request, name, lock=False)
    form = services.describe(tenant)
    rows, following = services.page_keys(tenant, PAGE_ROWS_MAX)
    keys = [key_form(services.describe_key(row), form) for row in rows]
    return _answer({"team_id": name, "team_info": team_form(form), "keys": keys, "next": following})


def _asked(request: HttpRequest, parameter: str) -> str:
    text = request.GET.get(parameter, "")
    if not text:
        f.refuse_if([Problem(f"/{parameter}", "required", f"give ?{parameter}=…")])
    return text


def _own_team(request: HttpRequest, name: str, *, lock: bool = True) -> Tenant:
    """Another's tenant is as unknown as one that does not exist."""
    tenants = caller_in(request).tenants
    if tenants is not None and name not in tenants:
        raise NotFound(f"there is no tenant {name!r}")
    return services.TENANTS.lock(name) if lock else services.get(name)


def _write(
    request: HttpRequest,
    act: Callable[[UnitOfWork], Document | None],
    secret: Callable[[], str | None] = lambda: None,
) -> WriteAnswer:
    options = WriteOptions(reason=_reason(request), dry_run=False, wait=None, timeout=0)
    return perform(request, options, act, secret=secret)


def _reason(request: HttpRequest) -> str:
    """The query's `reason`, as of every write; else on whose behalf the caller says to call."""
    if reason := request.GET.get("reason"):
        return reason
    behalf = request.headers.get(CHANGED_BY)
    return f"{DEFAULT_REASON} for {behalf}" if behalf else DEFAULT_REASON


def _key_form(item: Document | None) -> Document:
    key = item or {}
    return key_form(key, services.describe(services.get(key["tenant"])))


def _answer(body: Document, status: int = HTTPStatus.OK) -> HttpResponse:
    return json_answer(body, status)


@api.exception_handler(Refused)
def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    response = _answer(error_form(error), int(error.status))
    if error.status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    return response


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return _refused(request, TooLarge("the body is larger than HEADWORKS_BODY_MAX_BYTES"))


@api.exception_handler(Exception)
def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("%s %r failed", request.method, request.path, exc_info=error)
    return _refused(request, failure(error))
