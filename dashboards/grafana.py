"""Boards of Grafana, one for each layer and one for the control plane, from the rows of the charts.

They ask the Prometheus API of the control plane. `make docs` writes them into deploy/grafana/boards.
Source: Grafana's JSON model of dashboards, of panels of the type `timeseries`, and of variables of the type `query`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.translation import override

from dashboards.charts import FILTERS, LAYERS, Chart, Layer, Query, Section
from dashboards.charts.control_plane import CONTROL_PLANE
from dashboards.charts.rows import Look, written

Json = dict[str, Any]
BOARDS = (*LAYERS, CONTROL_PLANE)
TAG = "headworks"
_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39
_COLUMNS, _PANEL_WIDTH, _PANEL_HEIGHT = 24, 8, 8
_DASHES: dict[Look, Json] = {"dotted": {"fill": "dot", "dash": [0, 6]}, "dashed": {"fill": "dash", "dash": [8, 8]}}


def boards() -> dict[str, Json]:
    """By file name, in English."""
    with override("en"):
        return {f"{layer.name}.json": _board(layer) for layer in BOARDS}


def _board(layer: Layer) -> Json:
    filters = [label for label in FILTERS if any(label in chart.takes for chart in layer.charts)]
    return {
        "uid": f"headworks-{layer.name}",
        "title": f"Headworks: {layer.title}",
        "description": str(layer.lead),
        "tags": [TAG],
        "schemaVersion": _SCHEMA,
        "editable": True,
        # One crosshair over all panels.
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "refresh": "30s",
        "links": [_other_boards()],
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), *(_variable(label) for label in filters)]},
        "panels": list(_panels(layer)),
    }


def _other_boards() -> Json:
    return {
        "type": "dashboards",
        "title": "Headworks",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _source_variable() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> Json:
    """All values of a label. `All` matches series without the label as well."""
    query = f"label_values({label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels(layer: Layer) -> Iterator[Json]:
    top, number = 0, 0
    for section in layer.sections:
        number += 1
        yield _row(section, number, top)
        top += 1
        for place, chart in enumerate(section.charts):
            number += 1
            column, row = place % (_COLUMNS // _PANEL_WIDTH), place // (_COLUMNS // _PANEL_WIDTH)
            yield _panel(chart, number, column * _PANEL_WIDTH, top + row * _PANEL_HEIGHT)
        top += -(-len(section.charts) // (_COLUMNS // _PANEL_WIDTH)) * _PANEL_HEIGHT


def _row(section: Section, number: int, top: int) -> Json:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
    return {
        "id": number, "type": "row", "title": str(section.title), "collapsed": False, "gridPos": place, "panels": [],
    }  # fmt: skip


def _panel(chart: Chart, number: int, left: int, top: int) -> Json:
    return {
        "id": number,
        "type": "timeseries",
        "title": str(chart.title),
        "description": _description(chart),
        "datasource": _SOURCE,
        "gridPos": {"h": _PANEL_HEIGHT, "w": _PANEL_WIDTH, "x": left, "y": top},
        "fieldConfig": {"defaults": _defaults(chart), "overrides": list(_overrides(chart))},
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(chart, query, place) for place, query in enumerate(chart.queries)],
    }


def _description(chart: Chart) -> str:
    missing = [label for label in FILTERS if label not in chart.takes] if chart.takes else []
    unfiltered = f"Not by {' or '.join(missing)}: its series have no such label." if missing else ""
    return " ".join(part for part in (str(chart.note), str(chart.absent), unfiltered) if part)


def _defaults(chart: Chart) -> Json:
    limits: Json = {"min": chart.lowest} | ({} if chart.highest is None else {"max": chart.highest})
    steps: list[Json] = [{"color": "green", "value": None}]
    if chart.threshold is not None:
        steps.append({"color": "red", "value": chart.threshold})
    # A gap is a gap: what was not measured is not drawn over.
    custom: Json = {"lineWidth": 1, "fillOpacity": 0, "spanNulls": False, "showPoints": "auto"}
    if chart.threshold is not None:
        custom["thresholdsStyle"] = {"mode": "line"}
    return {
        "unit": chart.unit.grafana,
        **limits,
        "color": {"mode": "palette-classic"},
        "custom": custom,
        "thresholds": {"mode": "absolute", "steps": steps},
    }


def _overrides(chart: Chart) -> Iterator[Json]:
    for place, query in enumerate(chart.queries):
        if query.look in _DASHES:
            style = {"id": "custom.lineStyle", "value": _DASHES[query.look]}
            yield {"matcher": {"id": "byFrameRefID", "options": _letter(place)}, "properties": [style]}


def _target(chart: Chart, query: Query, place: int) -> Json:
    names = " · ".join(f"{{{{{label}}}}}" for label in chart.by)
    return {
        "refId": _letter(place),
        "datasource": _SOURCE,
        "editorMode": "code",
        "range": True,
        "expr": expression(chart, query),
        "legendFormat": f"{names} {query.stat}".strip() or str(chart.title),
    }


def expression(chart: Chart, query: Query) -> str:
    """With Grafana's variables. A chosen name of several is a regular expression, whose signs Grafana escapes."""
    matchers = ",".join(f'{label}=~"${label}"' for label in FILTERS if label in chart.takes)
    return written(query.promql, "$__rate_interval", matchers)


def _letter(place: int) -> str:
    return chr(ord("A") + place)
