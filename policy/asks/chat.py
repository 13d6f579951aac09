"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from policy.admission import NotAdmitted
from policy.asks.api import Api, Part, Reading, Sampling, Tokens, texts_of
from policy.asks.body import MAX_ITEMS


class _Message(Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: Raw = Raw(b"")


class _Chat(Sampling):
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=MAX_ITEMS)] = msgspec.field(default_factory=list)
    max_completion_tokens: Tokens = UNSET
    tools: Raw = Raw(b"")


def _read(chat: _Chat) -> Reading:
    texts: list[str] = []
    for message in chat.messages:
        texts.append(message.role)
        texts += texts_of(message.content)
        if calls := bytes(message.tool_calls):
            texts.append(calls.decode())
    if tools := bytes(chat.tools):
        texts.append(tools.decode())
    return Reading(
        texts=texts,
        messages=len(chat.messages),
        asked_max_tokens=_asked_max_tokens(chat),
        sequences=chat.choices,
        stream=bool(chat.stream),
        wants_usage=chat.wants_usage,
    )


def _asked_max_tokens(chat: _Chat) -> int | None:
    """The asked output length; None when the client left it open."""
    asked, other = chat.max_tokens or None, chat.max_completion_tokens or None
    if asked is not None and other is not None and asked != other:
        raise NotAdmitted(
            "conflicting_max_tokens",
            f"max_tokens is {asked} and max_completion_tokens is {other}; send one of the two",
            param="max_completion_tokens",
        )
    return other if asked is None else asked


API = Api(
    path="/v1/chat/completions",
    text_field="messages",
    decoder=msgspec.json.Decoder(_Chat),
    read=_read,
    # Engines that know both names let the newer one win; the older one is known to all.
    output_field="max_tokens",
    dropped=("max_completion_tokens",),
    format_in=("response_format",),
    forces_usage=True,
    shortened_by="truncate_prompt_tokens",
)
