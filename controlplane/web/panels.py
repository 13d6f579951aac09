"""Parts of pages that many browsers ask for again at the same moment, rendered once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import get_language

from controlplane.web.kept import Kept

# By template, so that a panel that takes long holds up no other; in each by language and variant.
_panels: defaultdict[str, Kept[str]] = defaultdict(Kept)


def shared_panel(template: str, context: Callable[[], dict[str, Any]], variant: Hashable = None) -> HttpResponse:
    """A panel that is the same for everybody with the same language and `variant`: it may hold nothing of a person."""
    key = (get_language(), variant)
    return HttpResponse(_panels[template].get(key, lambda: render_to_string(template, context())))
