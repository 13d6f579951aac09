"""Parameters of a page's address. What makes no sense there is as good as not said."""

from __future__ import annotations

from django.http import HttpRequest

# All that a row's number may have.
_DIGITS_MAX = 18


def text_in(request: HttpRequest, name: str) -> str:
    """Without NUL, which PostgreSQL takes in no text."""
    return request.GET.get(name, "").replace("\0", "")


def number_in(request: HttpRequest, name: str) -> int | None:
    """A row's number, as where a list goes on."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
