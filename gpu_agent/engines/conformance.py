"""Does an engine obey `response_format`? Engines and frontends drop a field that they do not know without a word.

The question asks for something else than the schema, so that a model does not obey by itself: with the format in force
its answer is an object of the schema whatever was asked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gpu_agent.engines.probe import Probe, Undecided
from wire.messages import UNREADABLE

# The object takes some fifteen; models that think aloud first need more.
_MAX_TOKENS = 128
_QUOTED_CHARACTERS = 80


class _Obeying(msgspec.Struct, forbid_unknown_fields=True):
    """What the schema allows."""

    colour: Literal["red", "green", "blue"]
    count: Annotated[int, Meta(ge=0, le=9)]


_SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        # Bounded, or a model could write digits until its tokens end.
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


def _question(model: str) -> bytes:
    return msgspec.json.encode(
        {
            "model": model,
            "messages": [{"role": "user", "content": "Say hello in one short sentence."}],
            "max_tokens": _MAX_TOKENS,
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "probe", "strict": True, "schema": _SCHEMA},
            },
        }
    )


def _broken_rule(body: bytes) -> str:
    try:
        choice = msgspec.json.decode(body, type=_Answer).choices[0]
    except UNREADABLE as error:
        return f"no_answer: the answer is no chat completion: {error}"
    content = choice.message.content or ""
    cut = choice.finish_reason == "length"
    if not content.strip():
        if cut:
            raise Undecided(f"no word of an answer within {_MAX_TOKENS} tokens")
        return "no_answer: the message has no content"
    return broken_rule(content, cut=cut)


def broken_rule(content: str, *, cut: bool) -> str:
    """The rule that an answer breaks, with its beginning; empty for none. `cut`: it ended for want of tokens.

    Raises: Undecided for the beginning of an object that was cut.
    """
    quoted = repr(content[:_QUOTED_CHARACTERS])
    try:
        value: Any = msgspec.json.decode(content)
    except UNREADABLE:
        if not content.lstrip().startswith("{"):
            return f"dropped_response_format: it answered in plain text: {quoted}"
        if cut:
            raise Undecided(f"the object has no end within {_MAX_TOKENS} tokens") from None
        return f"not_json: {quoted}"
    try:
        msgspec.convert(value, _Obeying)
    except msgspec.ValidationError as error:
        return f"wrong_type: {error}: {quoted}"
    return ""


JSON_SCHEMA = Probe("json_schema", "/v1/chat/completions", _question, _broken_rule)
