"""Parts of pages that many browsers ask for again at the same moment, rendered once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import get_language

from controlplane.web.kept import Kept

# By template, language and variant.
_panels: Kept[str] = Kept()


def shared_panel(template: str, context: Callable[[], dict[str, Any]], variant: Hashable = None) -> HttpResponse:
    """A panel that is the same for everybody with the same language and `variant`: it may hold nothing of a person."""
    key = (template, get_language(), variant)
    return HttpResponse(_panels.get(key, lambda: render_to_string(template, context())))
