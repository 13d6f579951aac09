"""The Dash app: one callback on the server, and the script that keeps the charts live."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from dash import ClientsideFunction, Dash, Input, Output
from django.conf import settings
from django.template.loader import render_to_string
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _

from controlplane.fleet.models import Node, Pool
from dashboards.asked import Asked
from dashboards.backend.adapters import current_request
from dashboards.backend.server import DjangoDashServer
from dashboards.layout import layout
from dashboards.spans import SPANS
from dashboards.whole import whole_of

# Where controlplane/urls.py puts this app. Dash writes it into the page.
PREFIX = "/dashboards/"
_SPAN_LABELS = {"15m": _("15 min"), "1h": _("1 h"), "6h": _("6 h"), "24h": _("24 h"), "7d": _("7 days")}


class DjangoDash(Dash):
    """Dash whose index page is a Django template, within the frame of the other pages."""

    def interpolate_index(self, *_names: Any, **kwargs: Any) -> str:
        # Dash made these tags; they hold nothing that a person typed.
        tags = {name: mark_safe(kwargs[name]) for name in ("config", "scripts", "app_entry")}  # noqa: S308
        request = current_request()
        context = {"section": "dashboard", **_choices(Asked.of(request.GET.dict())), **tags}
        return render_to_string("dashboards/page.html", context, request)


def _choices(asked: Asked) -> dict[str, Any]:
    """What the form offers, and what is chosen: also a name that nothing has, or has any more."""
    pools, nodes = (set(model.objects.values_list("name", flat=True)) for model in (Pool, Node))
    return {
        "asked": asked,
        "spans": [(name, _SPAN_LABELS[name]) for name in SPANS],
        "pools": sorted(pools | {asked.pool} - {""}),
        "nodes": sorted(nodes | {asked.node} - {""}),
    }


def _whole(search: object, _again: object) -> dict[str, Any]:
    parameters = parse_qsl(search.removeprefix("?")) if isinstance(search, str) else ()
    return whole_of(Asked.of(dict(parameters)), current_request())


def make_app() -> DjangoDash:
    app = DjangoDash(
        "dashboards",
        backend=DjangoDashServer,
        url_base_pathname=PREFIX,
        # Django's own: the page brings its static files.
        include_assets_files=False,
        use_pages=False,
        pages_folder="",
        update_title="",
        add_log_handler=False,
        use_async=False,
        csrf_token_name=settings.CSRF_COOKIE_NAME,
    )
    app.layout = layout
    app.callback(Output("whole", "data"), Input("address", "search"), Input("again", "data"))(_whole)
    app.clientside_callback(ClientsideFunction("headworks", "show"), Input("whole", "data"))  # type: ignore[no-untyped-call]
    return app


app = make_app()
