"""Documents that say that a request has failed, in the several shapes of engines and APIs."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class _Failure(Struct):
    message: str | None = None
    code: Any = None
    type: Any = None


class _Response(Struct):
    error: _Failure | str | None = None


class _Erring(Struct):
    """`error` is chat's, completions' and messages'; responses end by an event `error` or `response.failed`."""

    error: _Failure | str | None = None
    type: Any = None
    message: Any = None
    code: Any = None
    response: _Response | None = None


class _Choice(Struct):
    finish_reason: Any = None


class _Ending(Struct):
    choices: list[_Choice] = []


# (message, HTTP-like code), as `failure_in` gives them.
GIVEN_UP = ("it gave the request up: finish_reason abort", None)
# Anthropic's kinds of errors have no number beside them.
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 503,
}
_error_decoder = msgspec.json.Decoder(_Erring)
_ending_decoder = msgspec.json.Decoder(_Ending)


def failure_in(document: bytes) -> tuple[str, int | None] | None:
    """(message, HTTP-like code) when a JSON document is an error, as vLLM sends under HTTP 200 too; else None."""
    try:
        read = _error_decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    error = read.error
    if error is None and read.response is not None:
        error = read.response.error
    if error is None and read.type == "error":
        error = _Failure(read.message if isinstance(read.message, str) else None, read.code)
    if error is None or isinstance(error, str):
        return None if error is None else (error, None)
    code = error.code
    if isinstance(code, int) and 400 <= code <= 599:
        return error.message or "", code
    kind = error.type
    return error.message or "", _STATUS_OF_TYPE.get(kind) if isinstance(kind, str) else None


def given_up(document: bytes) -> bool:
    """Whether the engine ended the request by itself. vLLM that is stopped ends its streams so, as if all were well."""
    if b'"abort"' not in document:
        return False
    try:
        choices = _ending_decoder.decode(document).choices
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return any(choice.finish_reason == "abort" for choice in choices)
