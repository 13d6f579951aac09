"""Bodies that are messages of `wire`: read with every problem named, and described on the OpenAPI page."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from django.http import HttpRequest

from controlplane.core.fields import refused
from controlplane.core.json_text import not_json
from controlplane.core.rest import answers
from wire.problems import type_problems
from wire.schema import schemas

T = TypeVar("T")


def read_body(request: HttpRequest, kind: type[T]) -> T:
    """The request's body. Raises Malformed (no JSON) or Refused (each field that does not fit, at its path)."""
    return read_message(request.body, kind)


def read_message(body: bytes, kind: type[T]) -> T:
    """The same of a body that the route has read as a stream, since it may be larger than others."""
    try:
        message: T = _decoded(body, kind)
        return message
    except msgspec.ValidationError as error:
        raise refused(type_problems(_decoded(body, Any), kind)) from error


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(error) from error


def documented(name: str) -> dict[str, Any]:
    """`openapi_extra` of a call whose body is the message that `wire.schema` calls `name`."""
    content = {"application/json": {"schema": inlined(schemas()[name])}}
    return {"requestBody": {"required": True, "content": content}}


def described(body: str, answer: type[msgspec.Struct], status: int = HTTPStatus.OK) -> dict[str, Any]:
    """Arguments of a route whose body is the message that `wire.schema` calls so, and which answers with `answer`."""
    described = answers(answer, status)
    return {**described, "openapi_extra": {**described["openapi_extra"], **documented(body)}}


def inlined(schema: dict[str, Any]) -> Any:
    """A schema without references: within the OpenAPI document they would lead nowhere."""
    return _inlined(schema, schema.get("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            return _inlined(definitions[reference.rsplit("/", 1)[-1]], definitions)
        return {
            key: _inlined(value, definitions) for key, value in schema.items() if key not in ("$defs", "$schema", "$id")
        }
    if isinstance(schema, list):
        return [_inlined(value, definitions) for value in schema]
    return schema
