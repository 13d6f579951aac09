"""What a simulated engine answers: OpenAI's shapes, cut so that a token costs one concatenation.

`id` and `created` stand first in every object, so the rest is rendered once and reused. `ChoicesShape` renders for
one kind of request; texts are JSON strings already, without their quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import msgspec

from simulator.http_server import chunk, error_body

FinishReason = Literal["stop", "length"]
DONE = chunk(b"data: [DONE]\n\n")


def json_text(text: str) -> bytes:
    """`text` as the inside of a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def usage(prompt_tokens: int, completion_tokens: int) -> bytes:
    return (
        b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null}'
        % (prompt_tokens, prompt_tokens + completion_tokens, completion_tokens)
    )  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What begins every object of one answer: its id and when it was made (Unix time in whole seconds)."""

    id: bytes
    created: int

    @cached_property
    def opening(self) -> bytes:
        return b'{"id":"%b","created":%d' % (self.id, self.created)


class Shape(Protocol):
    """The answers of one API for one model; what belongs to a stream comes in chunks."""

    id_prefix: bytes

    def opening(self, identity: Identity) -> bytes:
        """What leaves before anything is computed."""

    def token(self, identity: Identity, index: int, position: int, text: bytes, reason: FinishReason | None) -> bytes:
        """The token at `position` of a choice, with all that must stand before its first."""

    def closing(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
        include_usage: bool,
    ) -> bytes:
        """What ends a stream."""

    def whole(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
    ) -> bytes:
        """The answer in one piece."""

    def error(self, status: int, message: str) -> bytes:
        """What ends a stream that cannot go on."""


class ChoicesShape:
    """The answers of chat or completions for one model."""

    def __init__(self, chat: bool, model: str) -> None:
        self.id_prefix = b"chatcmpl-" if chat else b"cmpl-"
        self._chat = chat
        kind, chunk_kind = (b"chat.completion", b"chat.completion.chunk") if chat else (b"text_completion",) * 2
        model_json = msgspec.json.encode(model)
        self._whole = b',"object":"%b","model":%b,"choices":[' % (kind, model_json)
        self._piece = b',"object":"%b","model":%b,"choices":[' % (chunk_kind, model_json)

    def role_event(self, index: int) -> bytes:
        """The event that opens a chat's choice, after the identity; a completion has none."""
        if not self._chat:
            return b""
        return (
            self._piece
            + b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}' % index
        )

    def token_event(self, index: int, text: bytes, finish_reason: FinishReason | None) -> bytes:
        """The event of one token, after the identity."""
        reason = b'"%b"' % finish_reason.encode() if finish_reason else b"null"
        form = (
            b'{"index":%d,"delta":{"content":"%b"},"logprobs":null,"finish_reason":%b}]}'
            if self._chat
            else b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":%b}]}'
        )
        return self._piece + form % (index, text, reason)

    def usage_event(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """The last event of a stream that asked for its usage: no choices."""
        return self._piece + b'],"usage":%b}' % usage(prompt_tokens, completion_tokens)

    def opening(self, identity: Identity) -> bytes:
        return b""

    def token(self, identity: Identity, index: int, position: int, text: bytes, reason: FinishReason | None) -> bytes:
        token_event = event(identity.opening, self.token_event(index, text, reason))
        if position == 0 and (role := self.role_event(index)):
            return event(identity.opening, role) + token_event
        return token_event

    def closing(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
        include_usage: bool,
    ) -> bytes:
        usage = event(identity.opening, self.usage_event(prompt_tokens, completion_tokens)) if include_usage else b""
        return usage + DONE

    def whole(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
    ) -> bytes:
        return identity.opening + self.whole_rest(choices, prompt_tokens, completion_tokens)

    def error(self, status: int, message: str) -> bytes:
        return chunk(b"data: %b\n\n" % error_body(status, "InternalServerError", message)) + DONE

    def whole_rest(
        self, choices: list[tuple[bytes, FinishReason]], prompt_tokens: int, completion_tokens: int
    ) -> bytes:
        """The answer in one piece, after the identity."""
        form = (
            b'{"index":%d,"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":"%b"}'
            if self._chat
            else b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":"%b"}'
        )
        rendered = b",".join(form % (index, text, reason.encode()) for index, (text, reason) in enumerate(choices))
        return self._whole + rendered + b'],"usage":%b}' % usage(prompt_tokens, completion_tokens)


def event(opening: bytes, rest: bytes) -> bytes:
    """One server-sent event, in its chunk."""
    return chunk(b"data: %b%b\n\n" % (opening, rest))


def named_event(name: str, document: dict[str, Any]) -> bytes:
    """One server-sent event that has a name, in its chunk."""
    return chunk(b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(document)))
