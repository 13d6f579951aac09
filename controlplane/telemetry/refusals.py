"""Errors of telemetry beside those of core."""

from __future__ import annotations

from http import HTTPStatus

from controlplane.core.errors import Refused, Unavailable

RETRY_AFTER_SECONDS = 5


class BadWrite(Refused):
    """Nothing of the body was stored; sending the same again cannot help."""

    status, code = HTTPStatus.BAD_REQUEST, "bad_write"


class UnsupportedForm(Refused):
    status, code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_form"


class TooManyWrites(Refused):
    status, code = HTTPStatus.TOO_MANY_REQUESTS, "too_many_writes"


class Busy(Unavailable):
    """Send the same again later."""

    def __init__(self, detail: str, retry_after_seconds: int = RETRY_AFTER_SECONDS) -> None:
        super().__init__(detail, retry_after_seconds=retry_after_seconds)
