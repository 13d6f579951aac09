"""Headers that what serves a call puts on its answer, which ninja makes only afterwards (see api.api)."""

from __future__ import annotations

from django.http import HttpRequest

_ATTRIBUTE = "headworks_answer_headers"


def set_answer_header(request: HttpRequest, name: str, value: str) -> None:
    """Put a header on the answer of this request, unless the call is refused after all."""
    setattr(request, _ATTRIBUTE, {**answer_headers(request), name: value})


def answer_headers(request: HttpRequest) -> dict[str, str]:
    headers: dict[str, str] = getattr(request, _ATTRIBUTE, {})
    return headers
