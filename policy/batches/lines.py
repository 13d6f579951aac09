"""One line of a batch's file: what it must be, and the named reason where it is not.

`{"custom_id": "a-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", …}}`
Source: OpenAI's Batch API, "Preparing your batch file".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

# Where a batch's lines may go, as clients write it.
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
CUSTOM_ID_MAX_CHARACTERS = 512
_MODEL_MAX_CHARACTERS = 200


class Line(NamedTuple):
    """A line that can be run. `body` is its JSON, byte for byte."""

    custom_id: str
    model: str
    body: bytes


class BrokenLine(ValueError):
    """`code` names what is wrong, the message says what would be right; `custom_id` where it could be read."""

    def __init__(self, code: str, message: str, custom_id: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.custom_id = code, message, custom_id


class _Written(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    model: Any = None
    stream: Any = None


_line_decoder = msgspec.json.Decoder(_Written)
_body_decoder = msgspec.json.Decoder(_Body)


def read_line(text: bytes, endpoint: str) -> Line:
    """Raises: BrokenLine (`invalid_json_line`, `invalid_custom_id`, `invalid_method`, `mismatched_url`,
    `invalid_body`, `missing_model`, `stream_not_served`)."""
    try:
        written = _line_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenLine("invalid_json_line", f"the line is not one JSON object: {error}") from None
    custom_id = written.custom_id
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= CUSTOM_ID_MAX_CHARACTERS or "\x00" in custom_id:
        raise BrokenLine("invalid_custom_id", f"custom_id must be text of 1 to {CUSTOM_ID_MAX_CHARACTERS} characters")
    if written.method != "POST":
        raise BrokenLine("invalid_method", 'method must be "POST"', custom_id)
    if written.url != endpoint:
        raise BrokenLine("mismatched_url", f"url must be the batch's endpoint, {endpoint}", custom_id)
    return Line(custom_id, _model_of(bytes(written.body), custom_id), bytes(written.body))


def _model_of(body: bytes, custom_id: str) -> str:
    try:
        asked = _body_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BrokenLine("invalid_body", "body must be a JSON object", custom_id) from None
    model = asked.model
    if not isinstance(model, str) or not 1 <= len(model) <= _MODEL_MAX_CHARACTERS or "\x00" in model:
        says = f"body.model must name a model, in 1 to {_MODEL_MAX_CHARACTERS} characters"
        raise BrokenLine("missing_model", says, custom_id)
    if asked.stream:
        raise BrokenLine("stream_not_served", "an answer is written to a file: leave body.stream out", custom_id)
    return model
