"""`POST /v1/messages`, Anthropic's API: what clients may send, and its answers, whole and as a stream."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from simulator.answers import FinishReason, Identity, named_event
from simulator.requests import ChatRequest, Message, OutputTokens, TextPart, not_simulated


class MessagesRequest(Struct, frozen=True, kw_only=True):
    """The fields after `ignore_eos` are known in order to refuse them by name."""

    model: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=10_000)]
    max_tokens: OutputTokens
    system: str | list[TextPart] | None = None
    stream: bool | None = False
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    ignore_eos: bool = False
    tools: Any = None
    stop_sequences: Any = None

    def as_chat(self) -> ChatRequest:
        """The same as a chat. Raises: ApiError."""
        for field in ("tools", "stop_sequences"):
            if getattr(self, field):
                raise not_simulated(field)
        system = [] if self.system is None else [Message("system", self.system)]
        return ChatRequest(
            model=self.model,
            messages=[*system, *self.messages],
            max_tokens=self.max_tokens,
            stream=self.stream,
            ignore_eos=self.ignore_eos,
        )


class MessagesShape:
    """The answers for one model."""

    id_prefix = b"msg_"

    def __init__(self, model: str) -> None:
        self._model = model

    def opening(self, identity: Identity) -> bytes:
        return b""

    def token(self, identity: Identity, index: int, position: int, text: bytes, reason: FinishReason | None) -> bytes:
        begin = b""
        if position == 0:
            # Here vLLM knows of the prompt as little as this: it is counted in the last event but one.
            start = self._message(identity, [], None, (0, 0))
            begin = _event("message_start", message=start) + _event(
                "content_block_start", index=0, content_block={"type": "text", "text": ""}
            )
        return begin + _event("content_block_delta", index=0, delta={"type": "text_delta", "text": _quoted(text)})

    def closing(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
        include_usage: bool,
    ) -> bytes:
        ((_, reason),) = choices
        delta = {"stop_reason": _stop_reason(reason), "stop_sequence": None}
        counts = {"input_tokens": prompt_tokens, "output_tokens": completion_tokens}
        return (
            _event("content_block_stop", index=0)
            + _event("message_delta", delta=delta, usage=counts)
            + _event("message_stop")
        )

    def whole(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
    ) -> bytes:
        ((text, reason),) = choices
        content = [{"type": "text", "text": _quoted(text)}]
        return msgspec.json.encode(self._message(identity, content, reason, (prompt_tokens, completion_tokens)))

    def error(self, status: int, message: str) -> bytes:
        return _event("error", error={"type": "api_error", "message": message})

    def _message(
        self,
        identity: Identity,
        content: list[dict[str, Any]],
        reason: FinishReason | None,
        counts: tuple[int, int],
    ) -> dict[str, Any]:
        return {
            "id": identity.id.decode(),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None if reason is None else _stop_reason(reason),
            "stop_sequence": None,
            "usage": {"input_tokens": counts[0], "output_tokens": counts[1]},
        }


def messages_error(kind: str, message: str) -> bytes:
    """An error in Anthropic's shape."""
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


def _event(name: str, **fields: Any) -> bytes:
    return named_event(name, {"type": name, **fields})


def _stop_reason(reason: FinishReason) -> str:
    return "max_tokens" if reason == "length" else "end_turn"


def _quoted(text: bytes) -> Raw:
    """Text that is the inside of a JSON string already."""
    return Raw(b'"%b"' % text)
