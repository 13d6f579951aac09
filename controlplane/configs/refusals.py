"""Refusals that only the distribution of configuration makes."""

from __future__ import annotations

from http import HTTPStatus

from controlplane.core.errors import Refused


class Unavailable(Refused):
    """Not now; the same call may succeed in a moment."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, retry_after_seconds=1)


class MethodNotAllowed(Refused):
    status, code = HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed"
