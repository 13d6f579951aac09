"""A layer's cards as Dash components. What they hold comes from the script (static/dashboards/charts.js)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import dcc, html
from django.utils.translation import gettext as _

from dashboards.charts import Chart, Layer, Section

# A double click is the script's: Plotly's own goes back to the time that was drawn first.
_GRAPH_CONFIG: Any = {
    "displayModeBar": False,
    "displaylogo": False,
    "responsive": True,
    "plotlyServerURL": "",
    "doubleClick": False,
}

# What stands below the charts of a layer, by its name: makers of components.
BELOW: dict[str, Callable[[], Any]] = {}


def layout_of(layer: Layer) -> Any:
    """In the language of the request of the moment."""
    below = BELOW.get(layer.name)
    return html.Div(
        [
            dcc.Location(id="address"),
            # Counts how often the page's script wants everything anew.
            dcc.Store(id="again", data=0),
            dcc.Store(id="whole"),
            # Whether the server is asked for it just now.
            dcc.Store(id="asking", data=False),
            *(_section(section) for section in layer.sections),
            *([below()] if below else []),
        ],
        className="layers",
    )


def _section(section: Section) -> Any:
    cards = [_card(chart) for chart in section.charts]
    return html.Section([html.H2(str(section.title)), html.Div(cards, className=f"charts of-{len(cards)}")])


def _card(chart: Chart) -> Any:
    curl_id = f"curl-{chart.name}"
    # For the script of all pages (site.js).
    copying: dict[str, Any] = {"data-copy": curl_id, "data-done": _("Copied")}
    return html.Article(
        [
            html.Div([_heading(chart), _menu(chart)], className="chart-head"),
            html.P(str(chart.note), id=f"note-{chart.name}", className="quiet small"),
            # Why it shows more than was chosen, or nothing.
            html.P(id=f"unfiltered-{chart.name}", className="note small unfiltered"),
            # The graph takes the height of what it stands in, which has a word until it is drawn.
            html.Div([dcc.Graph(id=chart.name, config=_GRAPH_CONFIG), *_instead()], className="graph"),
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


def _heading(chart: Chart) -> Any:
    return html.H3([str(chart.title), " ", html.Span(str(chart.unit.text), className="quiet")])


def _instead() -> list[Any]:
    """What is seen of it until it is drawn, and where the metric store did not answer."""
    retry: dict[str, Any] = {"data-retry": ""}
    return [
        html.P([html.Span(_("Loading"), className="loading"), html.Span(_("No answer"), className="failed")]),
        html.Button(_("Try again"), type="button", className="small-button retry", **retry),
    ]


def _menu(chart: Chart) -> Any:
    """What the page's script (menu.js) makes of a chart."""
    decorative: dict[str, Any] = {"aria-hidden": "true"}
    name = html.Span(_("Save or share: %(chart)s") % {"chart": chart.title}, className="visually-hidden")
    link = {"data-link": _("A link to this time"), "data-done": _("Copied")}
    buttons = [
        _button(chart, _("Picture (PNG)"), {"data-png": ""}),
        _button(chart, _("Values (CSV)"), {"data-csv": ""}),
        _button(chart, _("Copy a link to this time"), link),
    ]
    summary = html.Summary([html.Span("⋯", **decorative), name])
    return html.Details([summary, html.Div(buttons)], className="chart-menu")


def _button(chart: Chart, label: str, told: dict[str, Any]) -> Any:
    return html.Button(label, type="button", **{"data-chart": chart.name, **told})
