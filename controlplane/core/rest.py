"""The five REST calls that every named noun has, and the forms of lists and of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router, Schema, Status
from ninja.params.functions import Body as body_parameter
from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

from controlplane.core.fields import Fields, ShownAs
from controlplane.core.nouns import PAGE_ROWS, PAGE_ROWS_MAX, Noun
from controlplane.core.preconditions import IF_NONE_MATCH, Current, tagged
from controlplane.core.scope import any_of_theirs, own_tenant
from controlplane.core.security import Needs, caller_in, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

Limit = Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX, description="Rows a page at most.")]
Id = Annotated[int, Path(ge=1, le=2**63 - 1)]
After = Annotated[int, Query(ge=0, le=2**63 - 1, description="`next` of the page before.")]
# No control characters: PostgreSQL cannot compare with U+0000, and no name holds one.
Filter = Annotated[str, Query(max_length=200, pattern=r"^[^\x00-\x1f]*$")]


class Page(Schema):
    """One page of a list. Ask for the next with `after` set to `next`, until that is null."""

    items: list[Document]
    next: str | int | None


def json_answer(
    message: object, status: int = HTTPStatus.OK, *, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """A message of `wire`, or a plain document, as JSON that no cache keeps."""
    return HttpResponse(
        msgspec.json.encode(message),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def answers(kind: type[msgspec.Struct], status: int = HTTPStatus.OK) -> dict[str, Any]:
    """How a call that answers with `json_answer` of a flat message is described: arguments of its route."""
    schema = msgspec.json.schema_components([kind])[1][kind.__name__]
    described = {"responses": {int(status): {"content": {"application/json": {"schema": schema}}}}}
    return {"response": {int(status): None}, "openapi_extra": described}


def changes_of(fields: type[Fields]) -> type[BaseModel]:
    """The description of a PATCH body: the same fields, none of them required."""
    optional: dict[str, Any] = {
        name: (_annotation(field), Field(default=None)) for name, field in fields.model_fields.items()
    }
    return create_model(f"{fields.__name__.removesuffix('Fields')}Changes", __config__=fields.model_config, **optional)


def _annotation(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def add_noun(
    router: Router,
    path: str,
    noun: Noun[Any],
    *,
    write: Needs,
    name_in_path: str = "name",
    editable: bool = True,
    by_tenant: bool = False,
    show: Callable[[Sequence[Any]], list[Document]] | None = None,
) -> None:
    """Add list, create, read, change and delete of `noun` at `path`. Anyone may read; `write` says who may write.

    `name_in_path` is "path:name" for names that hold slashes. `editable`: there is something to PATCH. `show` makes
    the forms of rows that are read, where they say more than the public form, which the audit keeps.
    `by_tenant`: the rows are tenants, of which people who are limited to some read and change theirs.
    """
    one = f"{path}/{{{name_in_path}}}"
    what = {"tags": [path.strip("/")]}

    def shown(rows: Sequence[Any]) -> list[Document]:
        return [noun.describe(row) for row in rows] if show is None else show(rows)

    def locked(name: str) -> Current:
        return lambda: noun.describe(noun.lock(name))

    def list_(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
        rows, following = noun.page(limit, after, names=caller_in(request).tenants)
        return Page(items=shown(rows), next=following)

    def create(request: HttpRequest, options: Options, body: Document) -> Status[WriteAnswer]:
        # An absent name is refused as an empty one is, together with what else is wrong.
        name = body.pop("name", "")
        answer = perform(
            request,
            options,
            lambda unit: noun.describe(noun.create(unit, name, body)),
            current=lambda: noun.known(name),
        )
        return Status(HTTPStatus.CREATED, answer)

    def read(request: HttpRequest, name: str) -> Document:
        row = noun.get(name)
        return tagged(request, noun.describe(row), shown([row])[0])

    def change(request: HttpRequest, name: str, options: Options, body: Document) -> WriteAnswer:
        return perform(
            request, options, lambda unit: noun.describe(noun.update(unit, name, body)), current=locked(name)
        )

    def delete(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
        return perform(request, options, lambda unit: noun.delete(unit, name), current=locked(name))

    # Annotations that are made here cannot stand in the signatures above, where a type checker reads them.
    create.__annotations__["body"] = Annotated[dict[str, Any], ShownAs(noun.new_fields), body_parameter()]
    change.__annotations__["body"] = Annotated[dict[str, Any], ShownAs(changes_of(noun.fields)), body_parameter()]

    def named(verb: str) -> dict[str, Any]:
        return {**what, "summary": f"{verb} {noun.noun}", "operation_id": f"{verb}_{noun.title}".lower()}

    listing, reading, changing = viewer, viewer, write
    if by_tenant:
        listing, reading, changing = viewer.within(any_of_theirs), viewer.within(own_tenant), write.within(own_tenant)
    router.get(path, auth=listing, response=Page, **named("List"))(list_)
    router.post(path, auth=write, response={201: WriteAnswer}, openapi_extra=IF_NONE_MATCH, **named("Create"))(create)
    router.get(one, auth=reading, response=Document, **named("Read"))(read)
    if editable:
        router.patch(one, auth=changing, response=WriteAnswer, **named("Change"))(change)
    router.delete(one, auth=write, response=WriteAnswer, **named("Delete"))(delete)
