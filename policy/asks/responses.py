"""`POST /v1/responses`.

An answer that is made in the background would run outside of every limit, and what another request left at an engine
cannot be measured, nor is it at another engine: both are refused by name.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from policy.admission import NotAdmitted
from policy.asks.api import Api, Generating, Part, Reading, Tokens, texts_of
from policy.asks.body import MAX_ITEMS


class _Other(Struct):
    """An object without text that is counted, such as a screenshot."""


class _Item(Struct):
    """A message, a call of a tool, its output, or a thought: of each what has text."""

    type: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    name: str | None = None
    arguments: str | None = None
    input: Raw = Raw(b"")
    output: str | list[Part] | _Other | None = None


class _Response(Generating):
    input: str | Annotated[list[_Item], Meta(min_length=1, max_length=MAX_ITEMS)] = ""
    instructions: str | None = None
    max_output_tokens: Tokens = UNSET
    tools: Raw = Raw(b"")
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Raw = Raw(b"null")


def _read(response: _Response) -> Reading:
    if response.background:
        raise NotAdmitted("bad_field", "`background` answers are not served; leave it out", param="background")
    if response.previous_response_id is not None:
        raise _not_kept("previous_response_id")
    if bytes(response.conversation) != b"null":
        raise _not_kept("conversation")
    texts = [] if response.instructions is None else [response.instructions]
    messages = len(texts)
    if isinstance(response.input, str):
        texts.append(response.input)
        messages += 1
    else:
        messages += len(response.input)
        for item in response.input:
            if item.type == "item_reference":
                raise _not_kept("input")
            texts += _texts_of_item(item)
    if tools := bytes(response.tools):
        texts.append(tools.decode())
    return Reading(
        texts=texts,
        messages=messages,
        asked_max_tokens=response.max_output_tokens or None,
        stream=bool(response.stream),
    )


def _not_kept(field: str) -> NotAdmitted:
    message = f"`{field}` refers to what is kept elsewhere, and engines keep nothing; send the whole conversation"
    return NotAdmitted("bad_field", message, param=field)


def _texts_of_item(item: _Item) -> list[str]:
    texts = [text for text in (item.role, item.name, item.arguments) if text]
    if (given := bytes(item.input)).startswith(b'"'):
        texts.append(msgspec.json.decode(given))
    texts += texts_of(item.content)
    if not isinstance(item.output, _Other):
        texts += texts_of(item.output)
    return texts


API = Api(
    path="/v1/responses",
    text_field="input",
    decoder=msgspec.json.Decoder(_Response),
    read=_read,
    output_field="max_output_tokens",
    format_in=("text", "format"),
    shortened_by="truncation",
)
