"""The page's cards as Dash components. What they hold comes from the script (static/dashboards/charts.js)."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from django.utils.translation import gettext as _

from dashboards.charts import LAYERS, Chart, Layer

# A double click is the script's: Plotly's own goes back to the time that was drawn first.
_GRAPH_CONFIG: Any = {
    "displayModeBar": False,
    "displaylogo": False,
    "responsive": True,
    "plotlyServerURL": "",
    "doubleClick": False,
}


def layout() -> Any:
    """All layers in the language of the request of the moment."""
    return html.Div(
        [
            dcc.Location(id="address"),
            # Counts how often the page's script wants everything anew.
            dcc.Store(id="again", data=0),
            dcc.Store(id="whole"),
            *(_layer(layer) for layer in LAYERS),
        ],
        className="layers",
    )


def _layer(layer: Layer) -> Any:
    cards = [_card(chart) for chart in layer.charts]
    return html.Section([html.H2(str(layer.title)), html.Div(cards, className=f"charts of-{len(cards)}")])


def _card(chart: Chart) -> Any:
    curl_id = f"curl-{chart.name}"
    # For the script of all pages (site.js).
    copying: dict[str, Any] = {"data-copy": curl_id, "data-done": _("Copied")}
    return html.Article(
        [
            html.H3([str(chart.title), " ", html.Span(str(chart.unit.text), className="quiet")]),
            html.P(str(chart.note), id=f"note-{chart.name}", className="quiet small"),
            # The graph takes the height of what it stands in.
            html.Div(dcc.Graph(id=chart.name, config=_GRAPH_CONFIG), className="graph"),
            html.Ul(id=f"legend-{chart.name}", className="legend"),
            html.Details(
                [
                    html.Summary(_("As curl")),
                    html.Pre(id=curl_id),
                    html.Button(_("Copy"), type="button", className="small-button", **copying),
                ],
                className="curl",
            ),
        ],
        id=f"card-{chart.name}",
        className="card chart",
    )
