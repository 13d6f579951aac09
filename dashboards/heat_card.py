"""The heat map's card below the charts of engines and hardware, and the callback that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from django.urls import reverse
from django.utils.translation import gettext as _

from dashboards.asked import Asked
from dashboards.backend.adapters import current_request
from dashboards.charts.engines import ENGINES
from dashboards.heat import MEASURES
from dashboards.heat_reading import HEAT, heat_of

_GRAPH_CONFIG: Any = {
    "displayModeBar": False,
    "displaylogo": False,
    "responsive": True,
    "plotlyServerURL": "",
    # The script's (static/dashboards/charts.js), as of every chart.
    "doubleClick": False,
}


def card() -> Any:
    """In the language of the request of the moment. The script fills it (static/dashboards/heat.js)."""
    copying: dict[str, Any] = {"data-copy": "curl-heat", "data-done": _("Copied")}
    picturing: dict[str, Any] = {"data-png": "", "data-chart": HEAT}
    named: dict[str, Any] = {"aria-label": _("What the colours show")}
    values = reverse("dashboards:chart_csv", args=[HEAT])
    return html.Section(
        [
            html.H2(_("GPUs over time")),
            html.Article(
                [
                    dcc.Store(id="heat-measure", data=""),
                    dcc.Store(id="heat-given"),
                    html.Div(
                        [_choice(measure.name, str(measure.label)) for measure in MEASURES],
                        className="heat-choice",
                        role="group",
                        **named,
                    ),
                    html.Div(
                        [html.P(id="note-heat", className="quiet small"), html.Ul(id="heat-legend")],
                        className="heat-head",
                    ),
                    html.P(id="unfiltered-heat", className="note small unfiltered"),
                    html.Div(dcc.Graph(id="heat", config=_GRAPH_CONFIG), id="heat-frame", className="graph heat-graph"),
                    html.P(
                        [html.Span(_("Highest now:"), className="quiet"), " ", html.Span(id="heat-highest")],
                        id="heat-summary",
                        className="small",
                    ),
                    html.P(
                        [
                            html.A(_("Values (CSV)"), id="csv-heat", href=values),
                            html.Button(_("Picture (PNG)"), type="button", className="small-button", **picturing),
                        ],
                        className="small heat-taken",
                    ),
                    html.Details(
                        [
                            html.Summary(_("As curl")),
                            html.Pre(id="curl-heat"),
                            html.Button(_("Copy"), type="button", className="small-button", **copying),
                        ],
                        className="curl",
                    ),
                ],
                id="card-heat",
                className="card heat-card",
            ),
        ],
        id="gpus-over-time",
    )


def _choice(name: str, label: str) -> Any:
    pressed: dict[str, Any] = {"data-heat": name, "aria-pressed": "false"}
    return html.Button(label, id=f"heat-{name}", type="button", className="small-button", **pressed)


def fill(search: object, _again: object, measure: object) -> dict[str, Any]:
    """Anew with the page's time and filters, with each of its slow rounds, and with another choice."""
    parameters = dict(parse_qsl(search.removeprefix("?")) if isinstance(search, str) else ())
    name = measure if isinstance(measure, str) and measure else parameters.get(HEAT, "")
    return heat_of(Asked.of({**parameters, "layer": ENGINES.name}), name, current_request())


def register(app: Dash) -> tuple[str, Callable[[], Any]]:
    """Make the callbacks known; answers the layer below whose charts the card stands, and what makes it."""
    inputs = [Input("address", "search"), Input("again", "data"), Input("heat-measure", "data")]
    app.callback(Output("heat-given", "data"), *inputs)(fill)
    app.clientside_callback(ClientsideFunction("headworks_heat", "show"), Input("heat-given", "data"))  # type: ignore[no-untyped-call]
    return ENGINES.name, card
