"""What a simulated engine answers: OpenAI's shapes, cut so that a token costs one concatenation.

`id` and `created` stand first in every object, so the rest is rendered once and reused. `Shape` renders for
one kind of request; texts are JSON strings already, without their quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from simulator.http_server import chunk

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

    @property
    def opening(self) -> bytes:
        return b'{"id":"%b","created":%d' % (self.id, self.created)


class Shape:
    """The answers of one endpoint for one model."""

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

    def whole(self, choices: list[tuple[bytes, FinishReason]], prompt_tokens: int, completion_tokens: int) -> bytes:
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
