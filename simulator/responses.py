"""`POST /v1/responses`: what clients may send, and its answers, whole and as a stream of named events."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from simulator.answers import FinishReason, Identity, named_event
from simulator.requests import (
    ChatRequest,
    JsonSchema,
    Message,
    OutputTokens,
    ResponseFormat,
    TextPart,
    bad_request,
    not_simulated,
)


class _Part(Struct, frozen=True):
    type: str
    text: str


class _Item(Struct, frozen=True):
    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | Annotated[list[_Part], Meta(max_length=10_000)]
    type: str = "message"


class _Format(Struct, frozen=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None


class _Text(Struct, frozen=True):
    format: _Format | None = None


class ResponsesRequest(Struct, frozen=True, kw_only=True):
    """The fields after `ignore_eos` are known in order to refuse them by name."""

    model: str | None = None
    input: str | Annotated[list[_Item], Meta(min_length=1, max_length=10_000)]
    instructions: str | None = None
    max_output_tokens: OutputTokens | None = None
    stream: bool | None = False
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    text: _Text | None = None
    ignore_eos: bool = False
    tools: Any = None
    previous_response_id: Any = None
    background: Any = None

    def as_chat(self) -> ChatRequest:
        """The same as a chat. Raises: ApiError."""
        for field in ("tools", "previous_response_id", "background"):
            if getattr(self, field):
                raise not_simulated(field)
        messages = [] if self.instructions is None else [Message("system", self.instructions)]
        if isinstance(self.input, str):
            messages.append(Message("user", self.input))
        else:
            messages += [Message(item.role, _content(item)) for item in self.input]
        return ChatRequest(
            model=self.model,
            messages=messages,
            max_completion_tokens=self.max_output_tokens,
            stream=self.stream,
            ignore_eos=self.ignore_eos,
            response_format=_response_format(self.text),
        )


def _content(item: _Item) -> str | list[TextPart]:
    if isinstance(item.content, str):
        return item.content
    return [TextPart("text", part.text) for part in item.content]


def _response_format(text: _Text | None) -> ResponseFormat | None:
    if text is None or text.format is None or text.format.type == "text":
        return None
    form = text.format
    if form.type != "json_schema" or form.schema is None:
        raise bad_request("text.format is of type text, or json_schema with a schema", "text")
    return ResponseFormat("json_schema", JsonSchema(form.name or "answer", form.schema))


class ResponsesShape:
    """The answers for one model."""

    id_prefix = b"resp_"

    def __init__(self, model: str) -> None:
        self._model = model

    def opening(self, identity: Identity) -> bytes:
        response = self._response(identity, "in_progress", [], None, None)
        return _event("response.created", 0, response=response) + _event("response.in_progress", 1, response=response)

    def token(self, identity: Identity, index: int, position: int, text: bytes, reason: FinishReason | None) -> bytes:
        item = _item_id(identity)
        begin = b""
        if position == 0:
            begin = _event(
                "response.output_item.added", 2, output_index=0, item=_item(identity, "in_progress", [])
            ) + _event("response.content_part.added", 3, item_id=item, output_index=0, content_index=0, part=_part(b""))
        return begin + _event(
            "response.output_text.delta",
            4 + position,
            item_id=item,
            output_index=0,
            content_index=0,
            delta=_quoted(text),
            logprobs=[],
        )

    def closing(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
        include_usage: bool,
    ) -> bytes:
        ((text, reason),) = choices
        after, at = 4 + completion_tokens, {"output_index": 0, "content_index": 0, "item_id": _item_id(identity)}
        status, output = _status(reason), [_item(identity, _status(reason), [_part(text)])]
        response = self._response(identity, status, output, reason, (prompt_tokens, completion_tokens))
        return b"".join(
            (
                _event("response.output_text.done", after, **at, text=_quoted(text), logprobs=[]),
                _event("response.content_part.done", after + 1, **at, part=_part(text)),
                _event("response.output_item.done", after + 2, output_index=0, item=output[0]),
                _event(f"response.{status}", after + 3, response=response),
            )
        )

    def whole(
        self,
        identity: Identity,
        choices: list[tuple[bytes, FinishReason]],
        prompt_tokens: int,
        completion_tokens: int,
    ) -> bytes:
        ((text, reason),) = choices
        output = [_item(identity, _status(reason), [_part(text)])]
        counts = (prompt_tokens, completion_tokens)
        return msgspec.json.encode(self._response(identity, _status(reason), output, reason, counts))

    def error(self, status: int, message: str) -> bytes:
        return _event("error", 0, code="server_error", message=message, param=None)

    def _response(
        self,
        identity: Identity,
        status: str,
        output: list[dict[str, Any]],
        reason: FinishReason | None,
        counts: tuple[int, int] | None,
    ) -> dict[str, Any]:
        usage = None
        if counts is not None:
            usage = {
                "input_tokens": counts[0],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": counts[1],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sum(counts),
            }
        return {
            "id": identity.id.decode(),
            "object": "response",
            "created_at": identity.created,
            "model": self._model,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if reason == "length" else None,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }


def _event(name: str, number: int, **fields: Any) -> bytes:
    return named_event(name, {"type": name, "sequence_number": number, **fields})


def _item_id(identity: Identity) -> str:
    return f"msg_{identity.id.decode()}"


def _item(identity: Identity, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": _item_id(identity),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _part(text: bytes) -> dict[str, Any]:
    return {"type": "output_text", "text": _quoted(text), "annotations": []}


def _status(reason: FinishReason) -> str:
    return "incomplete" if reason == "length" else "completed"


def _quoted(text: bytes) -> Raw:
    """Text that is the inside of a JSON string already."""
    return Raw(b'"%b"' % text)
