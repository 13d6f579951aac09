"""Parts of pages that many browsers ask for again at the same moment, rendered once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import get_language

from controlplane.configs.hub import hub
from controlplane.web.convergence import KEPT_SECONDS


class Panels:
    """Rendered panels by template, language and variant, kept until something changes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes, self._since = -1, 0.0
        self._kept: dict[Hashable, str] = {}

    def get(self, key: Hashable, render: Callable[[], str]) -> str:
        if not hub.running:
            # Nothing here would tell of a change.
            return render()
        with self._lock:
            changes, now = hub.changes, time.monotonic()
            if changes != self._changes or now - self._since > KEPT_SECONDS:
                self._changes, self._since, self._kept = changes, now, {}
            if key not in self._kept:
                self._kept[key] = render()
            return self._kept[key]


_panels = Panels()


def shared_panel(template: str, context: Callable[[], dict[str, Any]], variant: Hashable = None) -> HttpResponse:
    """A panel that is the same for everybody with the same language and `variant`: it may hold nothing of a person."""
    key = (template, get_language(), variant)
    return HttpResponse(_panels.get(key, lambda: render_to_string(template, context())))
