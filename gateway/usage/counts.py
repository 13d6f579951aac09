"""Token counts under the names that each API has for them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

_Count = Annotated[int, Meta(ge=0, le=2**53 - 1)] | None


class Usage(Struct):
    """Token counts of a whole request; `completion_tokens` sums over its sequences. A zero is a zero."""

    prompt_tokens: int
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Counts(Struct):
    """A `usage` object as it came: chat's names, those of responses and messages, or a rerank's total alone."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    input_tokens: _Count = None
    output_tokens: _Count = None
    total_tokens: _Count = None
    cache_creation_input_tokens: _Count = None
    cache_read_input_tokens: _Count = None

    @property
    def prompt(self) -> int | None:
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        if self.input_tokens is not None:
            # Anthropic's input_tokens are those that no cache had.
            return self.input_tokens + (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return self.total_tokens if self.output is None else None

    @property
    def output(self) -> int | None:
        return self.output_tokens if self.completion_tokens is None else self.completion_tokens


class _Inner(Struct):
    usage: Counts | None = None


class Document(Struct):
    """Where usage stands: in the document itself, in the `response` of its last event, in the `message` of its first.

    The first event of messages has counted the prompt; what it says of the output is how it begins.
    """

    usage: Counts | None = None
    response: _Inner | None = None
    message: _Inner | str | None = None
    choices: list[Any] | None = None

    @property
    def final(self) -> Counts | None:
        if self.usage is None and self.response is not None:
            return self.response.usage
        return self.usage

    @property
    def first(self) -> Counts | None:
        return self.message.usage if isinstance(self.message, _Inner) else None


class NotAnAnswer(ValueError):
    """An engine's answer that is no JSON object."""


document_decoder = msgspec.json.Decoder(Document)
_object_decoder = msgspec.json.Decoder(dict[str, Raw])


def usage_of_answer(body: bytes) -> Usage | None:
    """The usage of a whole answer; None if it holds none. Raises: NotAnAnswer."""
    try:
        if not body.isascii():
            # What need not be read is skipped over without a look at its encoding.
            body.decode()
        said = document_decoder.decode(body).final
    except msgspec.ValidationError:
        _check_object(body)
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnAnswer(str(error)) from None
    if said is None or said.prompt is None:
        return None
    return Usage(said.prompt, said.output or 0)


def _check_object(body: bytes) -> None:
    try:
        _object_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnAnswer(str(error)) from None
