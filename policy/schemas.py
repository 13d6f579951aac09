"""What constrains the form of an answer: where it stands in each API, and whether it may be as large as it is.

An engine compiles each constraint into a grammar the first time that it sees it. Source: seed 1, section 17.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from policy.admission import NotAdmitted
from policy.asks import APIS, Ask
from policy.conversations import tools_of
from policy.schema_shape import ENDLESS, Shape, shape_of
from wire.snapshot import SchemaLimits

# vLLM takes no notice of these: the answer is not constrained, and nobody is told. Other engines may heed them.
IGNORED_BY_VLLM = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
# Fields beside the APIs' own: of vLLM, of SGLang and llama.cpp, and those above.
_BARE_FIELDS = ("structured_outputs", "regex", "ebnf", "grammar", "json_schema", *IGNORED_BY_VLLM)
# Those whose value is itself a schema.
_SCHEMA_FIELDS = ("json_schema", "guided_json")
_FIELDS = frozenset({*(api.format_in[0] for api in APIS.values() if api.format_in), "tools", *_BARE_FIELDS})
_DIGEST_BYTES = 16
_FORCING = ("required", "any")


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an engine compiles for a request.

    `field`: where it stands, to name it in a refusal; `json`: as it was sent; `as_chat`: the fields of a chat
    completion that constrain its answer in the same way.
    """

    field: str
    json: bytes
    as_chat: dict[str, Raw]


class Measured(NamedTuple):
    """`digest` is equal for constraints that engines compile to the same grammar: white space aside, equal texts.

    The order of properties counts, since it is that of the answer.
    """

    digest: bytes
    size_bytes: int
    shape: Shape


def constraints_of(ask: Ask) -> list[Constraint]:
    """All that constrains the answer; mostly nothing. What is malformed is left to the engine."""
    if not ask.generates or not ask.names_any(_FIELDS):
        return []
    found: list[Constraint] = []
    if (form := ask.response_format) not in (b"", b"null"):
        found += _of_format(ask, form)
    for field in _BARE_FIELDS:
        if (given := ask.raw(field)) not in (b"", b"null"):
            found.append(Constraint(field, given, {field: Raw(given)}))
    if ask.tools not in (b"", b"null", b"[]"):
        found += _of_tools(ask)
    return found


def ignored_field(ask: Ask) -> str | None:
    """The field by which a client means to constrain the answer, of which vLLM takes no notice."""
    return next((name for name in IGNORED_BY_VLLM if ask.raw(name) not in (b"", b"null")), None)


def check_size(constraint: Constraint, limits: SchemaLimits) -> None:
    """Before it is looked at, which takes time by its size. Raises: NotAdmitted (`schema_too_large`)."""
    size = len(constraint.json)
    if size > limits.max_bytes:
        raise NotAdmitted(
            "schema_too_large",
            f"what constrains the answer is {size} bytes; the tenant may send {limits.max_bytes}",
            param=constraint.field,
        )


def measured(constraint: Constraint) -> Measured:
    """What it is for engines. Raises: NotAdmitted (`bad_field`)."""
    try:
        decoded = msgspec.json.decode(constraint.json)
    except msgspec.DecodeError as error:
        # JSON that no reader takes: a number out of range.
        raise NotAdmitted("bad_field", f"`{constraint.field}`: {error}", param=constraint.field) from None
    digest = hashlib.blake2b(msgspec.json.encode(decoded), digest_size=_DIGEST_BYTES).digest()
    shapes = [shape_of(schema) for schema in _schemas_in(constraint.field, decoded)]
    depth = max((shape.depth for shape in shapes), default=0)
    alternatives = max((shape.alternatives for shape in shapes), default=0)
    return Measured(digest, len(constraint.json), Shape(depth, alternatives))


def check_shape(constraint: Constraint, shape: Shape, limits: SchemaLimits) -> None:
    """Raises: NotAdmitted (`schema_too_deep`, `schema_too_broad`)."""
    if shape.depth > limits.max_depth:
        depth = "without end" if shape.depth == ENDLESS else f"{shape.depth} deep"
        raise NotAdmitted(
            "schema_too_deep",
            f"the schema's objects and arrays stand {depth} in each other; the tenant may go {limits.max_depth} deep",
            param=constraint.field,
        )
    if shape.alternatives > limits.max_alternatives:
        raise NotAdmitted(
            "schema_too_broad",
            f"the schema has {shape.alternatives} alternatives in one place; the tenant may have "
            f"{limits.max_alternatives}",
            param=constraint.field,
        )


def _of_format(ask: Ask, form: bytes) -> Iterator[Constraint]:
    """`response_format` of chats and completions; `text.format` and `output_config.format`, which are flat."""
    field = ".".join(ask.api.format_in)
    kind = _member(form, "type")
    if kind == "json_schema" and len(ask.api.format_in) > 1:
        named = {"name": "answer", "schema": Raw(_raw_member(form, "schema"))}
        yield Constraint(field, form, {"response_format": _raw({"type": "json_schema", "json_schema": named})})
    elif kind not in ("text", "json_object"):
        yield Constraint(field, form, {"response_format": Raw(form)})


def _of_tools(ask: Ask) -> Iterator[Constraint]:
    """Tools whose arguments an engine constrains: those that are strict, and those that must be called."""
    choice = _decoded(ask.raw("tool_choice"))
    name = _called(choice)
    forced = name is not None or _kind(choice) in _FORCING
    if not forced and b'"strict"' not in ask.tools:
        return
    tools = [tool for tool in tools_of(ask) if _is_constrained(tool, forced, name)]
    if not tools:
        return
    fields: dict[str, Any] = {"tools": tools}
    if name is not None:
        fields["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif forced:
        fields["tool_choice"] = "required"
    yield Constraint("tools", msgspec.json.encode(tools), {key: _raw(value) for key, value in fields.items()})


def _is_constrained(tool: dict[str, Any], forced: bool, name: str | None) -> bool:
    function = tool["function"]
    return (forced and name in (None, function.get("name"))) or function.get("strict") is True


def _called(choice: Any) -> str | None:
    """The name of the one tool that must be called, in the forms of the three APIs."""
    if not isinstance(choice, dict) or choice.get("type") not in ("function", "tool"):
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return name if isinstance(name, str) else None


def _kind(choice: Any) -> Any:
    return choice.get("type") if isinstance(choice, dict) else choice


def _schemas_in(field: str, decoded: Any) -> Iterable[Any]:
    """The JSON schemas in a constraint; a list of choices is one with as many alternatives."""
    if field in _SCHEMA_FIELDS:
        return [_document(decoded)]
    if field == "tools":
        return [tool["function"].get("parameters") for tool in decoded]
    if isinstance(decoded, list):
        return [{"enum": decoded}]
    if not isinstance(decoded, dict):
        return ()
    found = [decoded.get("schema"), _document(decoded.get("json"))]
    if isinstance(wrapped := decoded.get("json_schema"), dict):
        found.append(wrapped.get("schema"))
    if isinstance(structures := decoded.get("structures"), list):
        found += [each.get("schema") for each in structures if isinstance(each, dict)]
    if isinstance(choices := decoded.get("choice"), list):
        found.append({"enum": choices})
    return found


def _document(given: Any) -> Any:
    """A schema, which may be sent as a text of JSON."""
    return _decoded(given.encode()) if isinstance(given, str) else given


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw or b"null")
    except (msgspec.DecodeError, RecursionError):
        return None


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _member(document: bytes, name: str) -> Any:
    return _decoded(_raw_member(document, name))


def _raw_member(document: bytes, name: str) -> bytes:
    try:
        return bytes(msgspec.json.decode(document, type=dict[str, Raw]).get(name, b""))
    except msgspec.ValidationError:
        return b""
