"""The panel that shows how far a change has come, asked for again with each event of the live stream."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.core.errors import NotFound
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.convergence import change_of, progress_of
from controlplane.web.panels import shared_panel


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    change = change_of(request)
    if change is None:
        raise NotFound("name the change: /convergence/?change=…")

    def context() -> dict[str, Any]:
        return {"change": change, "convergence": progress_of(change)}

    return shared_panel("web/parts/convergence.html", context, change)
