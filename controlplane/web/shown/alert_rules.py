"""What the pages of alerting rules show: each rule with its state, and a chart of what it compares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from controlplane.alerts.rule_file.durations import written
from controlplane.alerts.services import evidence, rules
from controlplane.core.fields import epoch_ms
from controlplane.telemetry import query
from controlplane.web.listed import Listed, Wanted, listed_of
from controlplane.web.shown.diagnosis import shown_value
from controlplane.web.shown.units import unit_of
from wire.canonical import Document

CHART_SPAN, CHART_POINTS, CHART_WIDTH, CHART_HEIGHT = timedelta(hours=1), 120, 600, 90
# A person tells no more lines apart.
LINES_MAX = 8
ROWS_PER_PAGE = 100
_LOOKED_FOR = ("rule_firing", "failed", "pending")


@dataclass(frozen=True)
class RuleLine:
    """`rule`: as REST shows it."""

    rule: Document

    @property
    def state(self) -> str:
        if not self.rule["enabled"]:
            return "off"
        if self.rule["last_error"]:
            return "failed"
        if self.rule["evaluated_at"] is None:
            return "waiting"
        return "rule_firing" if self.rule["firing"] else "pending" if self.rule["pending"] else "rule_inactive"

    @property
    def evaluated_at(self) -> datetime | None:
        at = self.rule["evaluated_at"]
        return datetime.fromisoformat(at) if at else None

    @property
    def lasts(self) -> str:
        return written(self.rule["for_ms"]) if self.rule["for_ms"] else ""

    @property
    def keeps_firing(self) -> str:
        return written(self.rule["keep_firing_for_ms"]) if self.rule["keep_firing_for_ms"] else ""


@dataclass(frozen=True)
class GroupLines:
    """`lines`: of its rules those that are shown. `rules`: how many it has; `firing`, `failing`: how many do."""

    name: str
    lines: list[RuleLine]
    rules: int
    firing: int
    failing: int


@dataclass(frozen=True)
class Rules:
    """The rules of one page, `listed`, by group. `states`: how many of all rules are in each that needs a look."""

    groups: list[GroupLines]
    listed: Listed[RuleLine]
    states: list[tuple[str, int]]


@dataclass(frozen=True)
class Chart:
    """The last hour of what a rule compares; `lines` are points of polylines, the limit the value compared with."""

    expr: str
    lines: list[str]
    more: int
    bottom: str
    top: str
    limit_y: float | None
    error: str = ""


def found(wanted: Wanted, state: str = "") -> Rules:
    """What is searched for in the names of rules, alerts and groups; `state`: of the rules that are in it alone."""
    groups = {name: [RuleLine(rule) for rule in shown] for name, shown in rules.grouped()}
    every = [line for lines in groups.values() for line in lines]
    page = listed_of([line for line in every if _is_wanted(line, wanted.text, state)], wanted, ROWS_PER_PAGE)
    counts = Counter(line.state for line in every)
    shown = groupby(page.rows, key=lambda line: str(line.rule["group"]))
    return Rules(
        [_group(name, list(lines), groups[name]) for name, lines in shown],
        page,
        [(each, counts[each]) for each in _LOOKED_FOR if counts[each]],
    )


def _is_wanted(line: RuleLine, text: str, state: str) -> bool:
    names = (str(line.rule[name]).casefold() for name in ("name", "alertname", "group"))
    return (not state or line.state == state) and any(text.casefold() in name for name in names)


def _group(name: str, lines: list[RuleLine], every: list[RuleLine]) -> GroupLines:
    states = [line.state for line in every]
    return GroupLines(name, lines, len(every), states.count("rule_firing"), states.count("failed"))


def chart(name: str, expr: str, now: datetime) -> Chart:
    """Of a rule's expression."""
    return drawn_chart(evidence.chart_of(name, expr), now)


def drawn_chart(drawn: evidence.Chart, now: datetime) -> Chart:
    """The hour up to `now`. What cannot be asked now says why."""
    end_ms, span_ms = epoch_ms(now), round(CHART_SPAN / timedelta(milliseconds=1))
    try:
        steps = end_ms - span_ms, end_ms, span_ms // CHART_POINTS
        series = query.range_(drawn.expr, *steps, seconds_max=query.PAGE_SECONDS)
    except query.QueryError as error:
        return Chart(drawn.expr, [], 0, "", "", None, str(error))
    values = [value for line in series for value in line.values if math.isfinite(value)]
    if not values:
        return Chart(drawn.expr, [], 0, "", "", None)
    limit = drawn.threshold
    bottom, top = _bounds(values if limit is None else [*values, limit])
    lines = [" ".join(_points(line, end_ms - span_ms, span_ms, bottom, top)) for line in series[:LINES_MAX]]
    limit_y = None if limit is None else _y(limit, bottom, top)
    unit, more = unit_of(drawn.expr), max(len(series) - LINES_MAX, 0)
    return Chart(drawn.expr, lines, more, _said(bottom, unit), _said(top, unit), limit_y)


def _said(value: float, unit: str) -> str:
    return shown_value(value, unit) if unit else f"{value:.4g}"


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    bottom, top = min(*values, 0.0), max(*values, 0.0)
    return bottom, top + ((top - bottom) * 0.1 or 1.0)


def _points(line: query.Series, begin_ms: int, span_ms: int, bottom: float, top: float) -> Iterator[str]:
    for at_ms, value in zip(line.times_ms, line.values, strict=True):
        if math.isfinite(value):
            yield f"{(at_ms - begin_ms) / span_ms * CHART_WIDTH:.1f},{_y(value, bottom, top):.1f}"


def _y(value: float, bottom: float, top: float) -> float:
    return round(CHART_HEIGHT * (1 - (value - bottom) / (top - bottom)), 1)
