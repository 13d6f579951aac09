"""What an API's module says of it, and the fields that several APIs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Endpoint = Literal["chat", "completions", "responses", "embeddings", "rerank", "messages"]

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)] | None | UnsetType
Sequences = Annotated[int, Meta(ge=1, le=10_000)] | None | UnsetType


class Asking(Struct):
    """The field of every body."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]


class Generating(Asking):
    """Fields of an API that generates text."""

    stream: bool | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class Sampling(Generating):
    """Fields that chat and completions share."""

    max_tokens: Tokens = UNSET
    n: Sequences = UNSET
    best_of: Sequences = UNSET
    stream_options: _StreamOptions | None = None

    @property
    def choices(self) -> int:
        """An engine that honours best_of generates that many; one that ignores it generates n."""
        return max(self.n or 1, self.best_of or 1)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class Part(Struct):
    """A part of a content, of whatever type: what it has of text is counted; images and audio are not measured."""

    text: str | None = None


def texts_of(content: str | list[Part] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part.text for part in content or () if part.text]


@dataclass(slots=True)
class Reading:
    """What an API's module has read of one body.

    `texts` are what a tokenizer counts; `counted_tokens` came as token ids, `longest_ids` of them in one input.
    `separate`: each text is an input of its own; `after_first`: each is read after the first one, as documents are
    after their query. `inputs` are read by themselves, `sequences` hold KV cache at once.
    """

    texts: list[str] = field(default_factory=list)
    messages: int = 0
    counted_tokens: int = 0
    longest_ids: int = 0
    separate: bool = False
    after_first: bool = False
    asked_max_tokens: int | None = None
    inputs: int = 1
    sequences: int = 1
    stream: bool = False
    wants_usage: bool = False


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    `text_field`: where the prompt stands. `output_field`: what bounds the output; None: nothing is generated.
    `dropped`: fields that are read, and that an engine is not sent. `format_in`: the fields that lead to the form
    that an answer must have. `forces_usage`: a stream tells its usage only where `stream_options` ask for it.
    `shortened_by`: the field that lets vLLM shorten a prompt that is too long.
    """

    path: str
    text_field: str
    decoder: msgspec.json.Decoder[Any]
    read: Callable[[Any], Reading]
    output_field: str | None
    dropped: tuple[str, ...] = ()
    format_in: tuple[str, ...] = ()
    forces_usage: bool = False
    shortened_by: str | None = None
