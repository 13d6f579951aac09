"""Why something was refused: named problems at JSON Pointer paths, and how to find all of them in a document."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why something was refused: where (`path`, a JSON Pointer), which rule, and what would be right."""

    path: str
    rule: str
    message: str


def pointer(parent: str, key: object) -> str:
    """The JSON Pointer (RFC 6901) of `key` under `parent`; the root is written `/`."""
    return f"{parent.rstrip('/')}/{str(key).replace('~', '~0').replace('/', '~1')}"


def type_problems(value: Any, kind: Any, path: str = "/") -> list[Problem]:
    """Every place where `value` does not fit the msgspec type `kind`; empty if it fits.

    msgspec stops at the first error and writes `[...]` for a map's key. This goes down fields and entries by
    itself, so that each problem names its own path.
    """
    message = _refusal(value, kind)
    if message is None:
        return []
    kind = _unwrapped(value, kind)
    found: list[Problem] = []
    if isinstance(value, dict):
        for key, item, item_kind in _parts(value, kind):
            found += type_problems(item, item_kind, pointer(path, key))
        found += _key_problems(value, kind, path) + _field_problems(value, kind, path) + _tag_problems(kind, path)
    elif isinstance(value, list) and get_origin(kind) is list:
        for index, item in enumerate(value):
            found += type_problems(item, get_args(kind)[0], pointer(path, index))
    return found or [Problem(path, "type", message)]


def _refusal(value: Any, kind: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error).partition(" - at `")[0]
    return None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _tagged_members(kind: Any) -> dict[Any, Any]:
    """Tag → member of a union of tagged structs."""
    structs = filter(_is_struct, get_args(kind))
    return {member.__struct_config__.tag: member for member in structs if member.__struct_config__.tag is not None}


def _unwrapped(value: Any, kind: Any) -> Any:
    """`kind` without Annotated and Unset; of a tagged union the member that the value's tag names."""
    if get_origin(kind) is Annotated:
        return _unwrapped(value, get_args(kind)[0])
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = [member for member in get_args(kind) if member is not UnsetType]
    if len(members) == 1:
        return _unwrapped(value, members[0])
    for tag, member in _tagged_members(kind).items():
        if isinstance(value, dict) and value.get(member.__struct_config__.tag_field) == tag:
            return member
    return kind


def _parts(value: dict[Any, Any], kind: Any) -> Iterator[tuple[object, Any, Any]]:
    """The entries of a map or struct that can be checked alone: key, item, the item's type."""
    if _is_struct(kind):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
    elif get_origin(kind) is dict:
        for key, item in value.items():
            yield key, item, get_args(kind)[1]


def _key_problems(value: dict[Any, Any], kind: Any, path: str) -> list[Problem]:
    if get_origin(kind) is not dict:
        return []
    refusals = ((key, _refusal(key, get_args(kind)[0])) for key in value)
    return [Problem(pointer(path, key), "key", message) for key, message in refusals if message is not None]


def _field_problems(value: dict[Any, Any], kind: Any, path: str) -> list[Problem]:
    """Missing required fields, and unknown ones where they are forbidden."""
    if not _is_struct(kind):
        return []
    fields = msgspec.structs.fields(kind)
    config = kind.__struct_config__
    problems = [
        Problem(pointer(path, field.encode_name), "required", f"the field {field.encode_name!r} is missing")
        for field in fields
        if field.required and field.encode_name not in value
    ]
    if config.forbid_unknown_fields:
        known = {field.encode_name for field in fields} | {config.tag_field}
        problems += [Problem(pointer(path, key), "unknown", "no such field") for key in value if key not in known]
    return problems


def _tag_problems(kind: Any, path: str) -> list[Problem]:
    """A tagged union whose tag names no member."""
    members = _tagged_members(kind)
    if not members:
        return []
    tag_field = next(iter(members.values())).__struct_config__.tag_field
    return [Problem(pointer(path, tag_field), "type", f"give one of {', '.join(map(repr, members))}")]
