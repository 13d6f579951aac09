"""One line of an output or error file, in OpenAI's form."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType


def line_id(batch_id: str, number: int) -> str:
    """The same whoever writes it, and however often."""
    return f"batch_req_{batch_id.removeprefix('batch_')}_{number}"


def answered(batch_id: str, number: int, custom_id: str, status: int, request_id: str, body: Raw | UnsetType) -> bytes:
    """`body`: JSON, as the gateway answered it."""
    response = {"status_code": status, "request_id": request_id, "body": None if body is UNSET else body}
    return _line(batch_id, number, custom_id, response, None)


def unanswered(batch_id: str, number: int, custom_id: str, code: str, message: str) -> bytes:
    return _line(batch_id, number, custom_id, None, {"code": code, "message": message})


def _line(batch_id: str, number: int, custom_id: str, response: object, error: object) -> bytes:
    line = {"id": line_id(batch_id, number), "custom_id": custom_id, "response": response, "error": error}
    text = msgspec.json.encode(line)
    # What came over the wire may hold line breaks between its tokens, and a line is one line.
    return (msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text) + b"\n"
