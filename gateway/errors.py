"""How a refusal looks to the clients of each API."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.refusals import Refused
from policy.asks import Endpoint

# The kinds of errors that Anthropic's clients know, where ours have another name.
_ANTHROPIC_TYPES = {"engine_error": "api_error", "internal_error": "api_error"}
_ANTHROPIC_TYPES_BY_STATUS = {404: "not_found_error"}


def error_body(refused: Refused, endpoint: Endpoint | None, request_id: str) -> bytes:
    """OpenAI's error shape, or Anthropic's for its messages; `code` is the named reason in both."""
    return msgspec.json.encode(_document(refused, endpoint, request_id))


def error_event(refused: Refused, endpoint: Endpoint | None, request_id: str, events_before: int) -> bytes:
    """The same as a server-sent event, for a stream that has begun.

    Responses end by an event `error`, whose fields stand at its top; the error object beside them is what OpenAI's
    clients raise.
    """
    document = _document(refused, endpoint, request_id)
    name = b""
    if endpoint == "responses":
        name = b"event: error\n"
        said = {"code": refused.reason, "message": refused.message, "param": refused.param}
        document = {"type": "error", "sequence_number": events_before, **said, **document}
    elif endpoint == "messages":
        name = b"event: error\n"
    return name + b"data: " + msgspec.json.encode(document) + b"\n\n"


def _document(refused: Refused, endpoint: Endpoint | None, request_id: str) -> dict[str, Any]:
    error = {
        "message": refused.message,
        "type": refused.row.error_type,
        "code": refused.reason,
        "param": refused.param,
    }
    if endpoint != "messages":
        return {"error": error}
    kind = _ANTHROPIC_TYPES_BY_STATUS.get(refused.row.status) or refused.row.error_type
    return {"type": "error", "error": {**error, "type": _ANTHROPIC_TYPES.get(kind, kind)}, "request_id": request_id}
