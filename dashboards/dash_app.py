"""The Dash app: one callback on the server, and the script that keeps the charts live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from dash import ClientsideFunction, Dash, Input, Output
from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext

from controlplane.fleet.models import Node, Pool
from controlplane.tenants.models import Tenant
from dashboards import heat_card
from dashboards.asked import Asked
from dashboards.backend.adapters import current_request, has_request
from dashboards.backend.server import DjangoDashServer
from dashboards.charts import LAYERS, Layer
from dashboards.layout import BELOW, layout_of
from dashboards.marks import KINDS
from dashboards.readings import now_ms
from dashboards.spans import SPANS
from dashboards.times import FIELDS, for_field, refusals, sensible
from dashboards.whole import whole_of

# Where controlplane/urls.py puts this app. Dash writes it into the page.
PREFIX = "/dashboards/"
_SPAN_LABELS = {"15m": _("15 min"), "1h": _("1 h"), "6h": _("6 h"), "24h": _("24 h"), "7d": _("7 days")}


class DjangoDash(Dash):
    """Dash whose index page is a Django template, within the frame of the other pages.

    Each layer is a page of its own: what it asks for has addresses below the page's.
    """

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = super()._config()  # type: ignore[no-untyped-call]
        return {**config, "requests_pathname_prefix": f"{PREFIX}{_layer().path}"}

    def interpolate_index(self, *_names: Any, **kwargs: Any) -> str:
        # Dash made these tags; they hold nothing that a person typed.
        tags = {name: mark_safe(kwargs[name]) for name in ("config", "scripts")}  # noqa: S308
        request = current_request()
        asked = _asked(request.GET.dict())
        context = {"section": "dashboard", **_choices(asked), **_marked(), **_between(), "tabs": _tabs(asked), **tags}
        return render_to_string("dashboards/page.html", context, request)


def _layer() -> Layer:
    """The one whose page is asked for, or what belongs to it. The first where nothing is."""
    path = current_request().path.removeprefix(PREFIX) if has_request() else ""
    return next((layer for layer in LAYERS if layer.path and path.startswith(layer.path)), LAYERS[0])


def _layout() -> Any:
    return layout_of(_layer())


def _tabs(asked: Asked) -> list[dict[str, Any]]:
    """All layers, with the same choices."""
    return [
        {
            "title": layer.title,
            "address": f"{reverse(f'dashboards:{layer.view}')}?{asked.query()}",
            "current": layer is asked.layer,
        }
        for layer in LAYERS
    ]


def _choices(asked: Asked) -> dict[str, Any]:
    """What the form offers, and what is chosen: also a name that nothing has, or has any more."""
    pools, tenants, nodes = (set(model.objects.values_list("name", flat=True)) for model in (Pool, Tenant, Node))
    return {
        "asked": asked,
        "spans": [(name, _SPAN_LABELS[name]) for name in SPANS],
        "choices": [
            ("pool", _("Pool"), asked.pool, sorted(pools | {asked.pool} - {""})),
            ("tenant", _("Tenant"), asked.tenant, sorted(tenants | {asked.tenant} - {""})),
            ("node", _("Node"), asked.node, sorted(nodes | {asked.node} - {""})),
        ],
    }


def _asked(parameters: Mapping[str, str]) -> Asked:
    """A time that is refused is as good as not said."""
    return Asked.of({**sensible(parameters, now_ms() / 1000), "layer": _layer().name})


def _between() -> dict[str, Any]:
    """The time that was typed, and why it may be refused."""
    given = current_request().GET
    texts = {name: given.get(name, "") for name in FIELDS}
    refused = refusals(given.dict(), now_ms() / 1000)
    labels = {"from": pgettext("time", "From"), "to": pgettext("time", "To")}
    return {"between": [(name, labels[name], for_field(texts[name]), refused.get(name, "")) for name in FIELDS]}


def _marked() -> dict[str, Any]:
    """The kinds of marks, and which of them are not to be seen."""
    hidden = current_request().GET.get("hide", "").split(",")
    kinds = [(kind, shape, label, kind not in hidden) for kind, shape, label in KINDS]
    return {"mark_kinds": kinds, "hide": ",".join(kind for kind, _shape, _label, seen in kinds if not seen)}


def _whole(search: object, _again: object) -> dict[str, Any]:
    parameters = parse_qsl(search.removeprefix("?")) if isinstance(search, str) else ()
    return whole_of(_asked(dict(parameters)), current_request())


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
        # Of what callbacks name each page has a part.
        suppress_callback_exceptions=True,
        csrf_token_name=settings.CSRF_COOKIE_NAME,
    )
    app.layout = _layout
    app.callback(
        Output("whole", "data"),
        Input("address", "search"),
        Input("again", "data"),
        running=[(Output("asking", "data"), True, False)],
    )(_whole)
    app.clientside_callback(ClientsideFunction("headworks", "asked"), Input("asking", "data"))  # type: ignore[no-untyped-call]
    app.clientside_callback(ClientsideFunction("headworks", "show"), Input("whole", "data"))  # type: ignore[no-untyped-call]
    layer_name, below = heat_card.register(app)
    BELOW[layer_name] = below
    return app


app = make_app()
