"""What shows that an incident is one: its rules' series around its start, and who is concerned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import promql_parser as ast
from django.db.models import Q

from controlplane.alerts import models as rows
from controlplane.alerts.services import alerts
from controlplane.core import fields as f
from controlplane.fleet.models import Engine
from controlplane.telemetry import query
from controlplane.telemetry.promql.binary import COMPARISON
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.results import Series, number
from wire.canonical import Document
from wire.write_body import METRIC_NAME

SPAN = timedelta(hours=1)
STEP = timedelta(seconds=15)
# What a person still reads in one picture, and on one page.
SERIES_SHOWN, CHARTS_SHOWN, ALERTS_READ = 20, 4, 200
_TENANTS = 'sum by (tenant) (increase(headworks_gateway_requests_total{{pool=~"{pools}"}}[{seconds}s])) > 0'


@dataclass(frozen=True)
class Chart:
    """What is drawn: PromQL, and the value that it was compared with, where the rule compares with one."""

    title: str
    expr: str
    threshold: float | None = None


def of(incident: rows.Incident, now: datetime) -> Document:
    """Charts, affected pools and tenants of an incident. A metrics server that does not answer takes no page away."""
    start, end = span_of(incident, now)
    read = alerts.first_of(incident, ALERTS_READ)
    return {
        "start": f.iso(start),
        "end": f.iso(end),
        "step_seconds": int(STEP.total_seconds()),
        "charts": [_drawn(chart, start, end) for chart in charts_of(read)],
        **concerned(incident, now),
    }


def concerned(incident: rows.Incident, now: datetime) -> Document:
    """The pools that it concerns, and the tenants who had requests there around its start."""
    start, end = span_of(incident, now)
    pools = affected_pools(alert.labels for alert in alerts.first_of(incident, ALERTS_READ))
    tenants, error = _tenants(pools, start, end)
    return {"pools": pools, "tenants": tenants, "tenants_error": error}


def span_of(incident: rows.Incident, now: datetime) -> tuple[datetime, datetime]:
    """An hour with the incident's start in its middle, or up to now where that is sooner."""
    end = min(now, incident.started_at + SPAN / 2)
    return end - SPAN, end


def charts_of(read: Iterable[rows.Alert]) -> list[Chart]:
    """Of the rules of these alerts, each once; of what events tell, of what they are about."""
    alerts_read = list(read)
    names = {each.labels.get("alertname", "") for each in alerts_read if each.source == rows.AlertSource.RULE}
    of_rules = rows.Rule.objects.filter(Q(name__in=names) | Q(alertname__in=names - {""})).order_by("name")
    found = [chart_of(rule.name, rule.expr) for rule in of_rules]
    for alert in alerts_read:
        if alert.source == rows.AlertSource.EVENT:
            found += _of_event(alert.labels)
    return list({chart.expr: chart for chart in found}.values())[:CHARTS_SHOWN]


def _of_event(labels: dict[str, str]) -> list[Chart]:
    if engine := labels.get("engine"):
        chosen = f'{{engine="{engine}"}}'
        return [
            Chart(f"{engine}: requests", f"headworks_engine_requests_running{chosen}"),
            Chart(f"{engine}: KV cache", f"headworks_engine_kv_cache_usage_ratio{chosen}"),
        ]
    if node := labels.get("node"):
        chosen = f'{{node="{node}"}}'
        return [
            Chart(f"{node}: GPU temperature", f"DCGM_FI_DEV_GPU_TEMP{chosen}"),
            Chart(f"{node}: requests", f"sum by (engine) (headworks_engine_requests_running{chosen})"),
        ]
    return []


def chart_of(title: str, expr: str) -> Chart:
    """What a rule compares, rather than what its comparison lets through: that is empty where all is well."""
    try:
        tree = parse(expr)
    except query.QueryError:
        return Chart(title, expr)
    while isinstance(tree, ast.ParenExpr):
        tree = tree.expr
    if isinstance(tree, ast.BinaryExpr) and str(tree.op) in COMPARISON and isinstance(tree.rhs, ast.NumberLiteral):
        return Chart(title, tree.lhs.prettify(), float(tree.rhs.val))
    return Chart(title, expr)


def _drawn(chart: Chart, start: datetime, end: datetime) -> Document:
    found: list[Series] = []
    error = None
    try:
        found = query.range_(chart.expr, f.epoch_ms(start), f.epoch_ms(end), int(STEP.total_seconds() * 1000))
    except query.QueryError as refused:
        error = str(refused)
    return {
        "title": chart.title,
        "expr": chart.expr,
        "threshold": chart.threshold,
        "series": [_series(each) for each in found[:SERIES_SHOWN]],
        "series_more": max(len(found) - SERIES_SHOWN, 0),
        "error": error,
    }


def affected_pools(labels: Iterable[dict[str, str]]) -> list[str]:
    """Pools that alerts of these labels concern: by name, by an engine of theirs, or by a node of its engines."""
    read = list(labels)
    pools = {each["pool"] for each in read if "pool" in each}
    engines = {each["engine"] for each in read if "engine" in each}
    nodes = {each["node"] for each in read if "node" in each and "engine" not in each and "pool" not in each}
    served = Engine.objects.filter(name__in=engines) | Engine.objects.filter(node__name__in=nodes)
    return sorted(pools | set(served.exclude(pool=None).values_list("pool__name", flat=True)))


def _tenants(pools: list[str], start: datetime, end: datetime) -> tuple[list[str], str | None]:
    """Who had requests in these pools then."""
    if not pools:
        return [], None
    named = "|".join(pool.replace(".", "[.]") for pool in pools)
    promql = _TENANTS.format(pools=named, seconds=int((end - start).total_seconds()))
    try:
        found = query.instant(promql, f.epoch_ms(end))
    except query.QueryError as refused:
        return [], str(refused)
    return sorted({each.labels.get("tenant", "") for each in found} - {""}), None


def _series(series: Series) -> Document:
    labels = {name: value for name, value in series.labels.items() if name != METRIC_NAME}
    points = zip(series.times_ms, series.values, strict=True)
    return {"labels": labels, "points": [[at, number(value)] for at, value in points]}
