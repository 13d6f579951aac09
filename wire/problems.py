"""Why something was refused: named problems at JSON Pointer paths, and how to find all of them in a document."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

MAX_PROBLEMS = 100
MAX_TEXT_CHARACTERS = 500


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why something was refused: where (`path`, a JSON Pointer), which rule, and what would be right."""

    path: str
    rule: str
    message: str


def pointer(parent: str, key: object) -> str:
    """The JSON Pointer (RFC 6901) of `key` under `parent`; the root is written `/`."""
    return f"{parent.rstrip('/')}/{str(key).replace('~', '~0').replace('/', '~1')}"


def type_problems(value: Any, kind: Any, path: str = "/") -> list[Problem]:
    """Where `value` does not fit the msgspec type `kind`, the first MAX_PROBLEMS places; empty if it fits.

    msgspec stops at the first error and writes `[...]` for a map's key. This goes down fields and entries by
    itself, so that each problem names its own path. What it says is cut to MAX_TEXT_CHARACTERS, as it may quote.
    """
    first = itertools.islice(_walk(value, kind, path), MAX_PROBLEMS)
    return [Problem(cut(problem.path), problem.rule, cut(problem.message)) for problem in first]


def cut(text: str) -> str:
    """At most MAX_TEXT_CHARACTERS of it, the end of a longer one replaced by `…`."""
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[: MAX_TEXT_CHARACTERS - 1]}…"


def _walk(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    """Problems as they are found, so that whoever has enough of them ends the search."""
    message = _refusal(value, kind)
    if message is None:
        return
    kind = _unwrapped(value, kind)
    within = _within(value, kind, path)
    first = next(within, None)
    if first is None:
        yield Problem(path, "type", f"{message}{_choice(kind)}")
    else:
        yield first
        yield from within


def _within(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, item, item_kind in _parts(value, kind):
            yield from _walk(item, item_kind, pointer(path, key))
        yield from _key_problems(value, kind, path)
        yield from _field_problems(value, kind, path)
        yield from _tag_problems(kind, path)
    elif isinstance(value, list) and get_origin(kind) is list:
        for index, item in enumerate(value):
            yield from _walk(item, get_args(kind)[0], pointer(path, index))


def _refusal(value: Any, kind: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error).partition(" - at `")[0]
    return None


def _choice(kind: Any) -> str:
    return f"; give one of {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""


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


def _key_problems(value: dict[Any, Any], kind: Any, path: str) -> Iterator[Problem]:
    if get_origin(kind) is dict:
        for key in value:
            if (message := _refusal(key, get_args(kind)[0])) is not None:
                yield Problem(pointer(path, key), "key", message)


def _field_problems(value: dict[Any, Any], kind: Any, path: str) -> Iterator[Problem]:
    """Missing required fields, and unknown ones where they are forbidden."""
    if not _is_struct(kind):
        return
    fields = msgspec.structs.fields(kind)
    config = kind.__struct_config__
    for field in fields:
        if field.required and field.encode_name not in value:
            yield Problem(pointer(path, field.encode_name), "required", f"the field {field.encode_name!r} is missing")
    if config.forbid_unknown_fields:
        known = {field.encode_name for field in fields} | {config.tag_field}
        for key in value:
            if key not in known:
                yield Problem(pointer(path, key), "unknown", "no such field")


def _tag_problems(kind: Any, path: str) -> list[Problem]:
    """A tagged union whose tag names no member."""
    members = _tagged_members(kind)
    if not members:
        return []
    tag_field = next(iter(members.values())).__struct_config__.tag_field
    return [Problem(pointer(path, tag_field), "type", f"give one of {', '.join(map(repr, members))}")]
