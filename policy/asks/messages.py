"""`POST /v1/messages`, the API of Anthropic's clients. max_tokens may be left out, as everywhere here."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from policy.asks.api import Api, Generating, Part, Reading, Tokens, texts_of
from policy.asks.body import MAX_ITEMS


class _Block(Struct):
    """A text, a thought, a call of a tool or its result. Images and documents are not measured."""

    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: Raw = Raw(b"")
    content: str | list[Part] | None = None


class _Message(Struct):
    role: str
    content: str | list[_Block]


class _Messages(Generating):
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=MAX_ITEMS)] = msgspec.field(default_factory=list)
    system: str | list[Part] | None = None
    max_tokens: Tokens = UNSET
    tools: Raw = Raw(b"")


def _read(asked: _Messages) -> Reading:
    system = texts_of(asked.system)
    texts = [*system]
    for message in asked.messages:
        texts.append(message.role)
        if isinstance(message.content, str):
            texts.append(message.content)
        else:
            for block in message.content:
                texts += _texts_of_block(block)
    if tools := bytes(asked.tools):
        texts.append(tools.decode())
    return Reading(
        texts=texts,
        messages=len(asked.messages) + bool(system),
        asked_max_tokens=asked.max_tokens or None,
        stream=bool(asked.stream),
    )


def _texts_of_block(block: _Block) -> list[str]:
    texts = [text for text in (block.text, block.thinking, block.name) if text]
    if given := bytes(block.input):
        texts.append(given.decode())
    return texts + texts_of(block.content)


API = Api(
    path="/v1/messages",
    text_field="messages",
    decoder=msgspec.json.Decoder(_Messages),
    read=_read,
    output_field="max_tokens",
    format_in=("output_config", "format"),
)
