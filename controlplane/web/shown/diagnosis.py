"""The diagnosis as its pages show it, in the reader's language."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.core.fields import epoch_ms
from controlplane.diagnosis.applying import KINDS, picked
from controlplane.diagnosis.changed_since import Changed
from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import REVERTIBLE_STATES, Finding, Proposal, ProposalState
from controlplane.diagnosis.standing import HISTORY, Card, changed_since, open_findings
from controlplane.diagnosis.texts import in_language
from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import TimedOut, Unavailable
from controlplane.web import differences
from controlplane.web.labels import action_label
from controlplane.web.shown.evidence import evidence_label
from wire.canonical import Document

# Of the strip of a card and of a chart, in units of their drawing.
STRIP_WIDTH, SPAN_MIN_WIDTH, CHART_WIDTH, CHART_HEIGHT = 1440, 6, 600, 80
CHART_SPAN, CHART_POINTS = timedelta(hours=1), 120
TOP_FINDINGS = 3
# A person tells no more lines apart.
LINES_MAX = 8
_UNITS = {
    "per_second": gettext_lazy("a second"),
    "tokens_per_second": gettext_lazy("tokens a second"),
    "seconds": gettext_lazy("s"),
    "count": "",
    "celsius": "°C",
    "watts": "W",
}
VERB_LABELS = {
    "apply": gettext_lazy("Apply"),
    "revert": gettext_lazy("Take back"),
    "dismiss": gettext_lazy("Dismiss"),
}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown_value(value: float, unit: str) -> str:
    """97.1 %, 12.3 GiB, 480 tokens, 0.25 s."""
    if unit == "ratio":
        return _("%(number)s %%") % {"number": _number(100 * value)}
    if unit == "bytes":
        power = min(int(math.log(abs(value), 1024)), len(_BINARY) - 1) if abs(value) >= 1 else 0
        return f"{_number(value / 1024**power)} {_BINARY[power]}"
    if unit == "tokens":
        return ngettext("%(count)s token", "%(count)s tokens", _plural_of(value)) % {"count": _number(value)}
    if unit == "requests":
        return ngettext("%(count)s request", "%(count)s requests", _plural_of(value)) % {"count": _number(value)}
    return f"{_number(value)} {_UNITS.get(unit, unit)}".strip()


def _plural_of(value: float) -> int:
    """Of a fraction there are some."""
    return 1 if value == 1 else 2


def _number(value: float) -> str:
    decimals = 0 if value == round(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return number_format(round(value, decimals), decimals, use_l10n=True, force_grouping=True)


@dataclass(frozen=True)
class Span:
    """A time in which something was found, on a strip of STRIP_WIDTH."""

    x: float
    width: float


@dataclass(frozen=True)
class CardLine:
    card: Card
    now: datetime

    @property
    def detector(self) -> Detector:
        return self.card.detector

    @property
    def findings(self) -> list[tuple[Finding, str]]:
        return [(finding, in_language(finding.summary)) for finding in self.card.found]

    @property
    def strip(self) -> list[Span]:
        return [self._span(finding) for finding in self.card.lately]

    def _span(self, finding: Finding) -> Span:
        begin = max(0.0, 1 - (self.now - finding.since) / HISTORY)
        end = 1.0 if finding.cleared_at is None else 1 - (self.now - finding.cleared_at) / HISTORY
        # One that was short, or has just begun, is to be seen too.
        width = max((end - begin) * STRIP_WIDTH, SPAN_MIN_WIDTH)
        return Span(round(min(begin * STRIP_WIDTH, STRIP_WIDTH - width), 1), round(width, 1))


@dataclass(frozen=True)
class TopFinding:
    """One of the surest, as the overview shows it."""

    row: Finding
    title: str
    summary: str


def title_of(detector: str) -> str:
    """One that a later version had keeps its name."""
    return next((str(each.title) for each in DETECTORS if each.name == detector), detector)


def top_findings() -> list[TopFinding]:
    return [TopFinding(row, title_of(row.detector), in_language(row.summary)) for row in open_findings()[:TOP_FINDINGS]]


@dataclass(frozen=True)
class EvidenceLine:
    name: str
    value: str
    limit: str | None
    expr: str


def evidence_lines(finding: Finding) -> list[EvidenceLine]:
    return [
        EvidenceLine(
            evidence_label(each["name"]),
            shown_value(each["value"], each["unit"]),
            None if each["limit"] is None else shown_value(each["limit"], each["unit"]),
            each["expr"],
        )
        for each in finding.evidence
    ]


@dataclass(frozen=True)
class Chart:
    """One piece of evidence over the last hour: points of SVG lines, the limit's height, the scale's top."""

    name: str
    lines: list[str]
    limit_y: float | None
    top: str


def charts(finding: Finding, now: datetime) -> list[Chart]:
    """Of the evidence that is drawn by PromQL. What cannot be asked now has no chart."""
    found = []
    end_ms, span_ms = epoch_ms(now), round(CHART_SPAN / timedelta(milliseconds=1))
    for evidence in finding.evidence:
        if not evidence["expr"]:
            continue
        try:
            steps = end_ms - span_ms, end_ms, span_ms // CHART_POINTS
            series = query.range_(evidence["expr"], *steps, seconds_max=query.PAGE_SECONDS)
        except (TimedOut, Unavailable):
            # The next would have to be waited for as long.
            break
        except query.QueryError:
            continue
        lines = [line for line in series if _concerns(line.labels, finding)][:LINES_MAX]
        if chart := _chart(evidence, lines, end_ms - span_ms, span_ms):
            found.append(chart)
    return found


def _concerns(labels: dict[str, str], finding: Finding) -> bool:
    """Whether a series is of the finding's place, as far as its labels say."""
    kind, _, name = finding.subject.partition("/")
    if kind in labels:
        return labels[kind] == name
    return "pool" not in labels or not finding.pools or labels["pool"] in finding.pools


def _chart(evidence: dict[str, Any], series: Sequence[query.Series], begin_ms: int, span_ms: int) -> Chart | None:
    values = [value for line in series for value in line.values if math.isfinite(value)]
    if not values:
        return None
    limit = evidence["limit"]
    top = max(*values, limit or 0.0, 0.0) * 1.1 or 1.0
    lines = [" ".join(_points(line, begin_ms, span_ms, top)) for line in series]
    return Chart(
        name=evidence_label(evidence["name"]),
        lines=[line for line in lines if line],
        limit_y=None if limit is None else round(CHART_HEIGHT * (1 - limit / top), 1),
        top=shown_value(top, evidence["unit"]),
    )


def _points(line: query.Series, begin_ms: int, span_ms: int, top: float) -> Iterable[str]:
    for at_ms, value in zip(line.times_ms, line.values, strict=True):
        if math.isfinite(value):
            x, y = (at_ms - begin_ms) / span_ms * CHART_WIDTH, CHART_HEIGHT * (1 - max(value, 0.0) / top)
            yield f"{x:.1f},{y:.1f}"


@dataclass(frozen=True)
class LeverLine:
    """A lever with what it would change, or has changed, and what a person may do with it."""

    row: Proposal
    objects: list[differences.Difference]
    commands: list[str]
    changed: list[Changed]

    @property
    def title(self) -> str:
        return in_language(self.row.title)

    @property
    def why(self) -> str:
        return in_language(self.row.why)

    @property
    def advice(self) -> str:
        return in_language(self.row.advice)

    @property
    def may_apply(self) -> bool:
        return self.row.state == ProposalState.PROPOSED and bool(self.row.edits or self.row.commands)

    @property
    def verbs(self) -> list[tuple[str, Any]]:
        """What can be done with it, each with its label."""
        can = {
            "apply": self.may_apply,
            "revert": self.row.state in REVERTIBLE_STATES and bool(self.row.replaced) and not self.changed,
            "dismiss": self.row.state in (ProposalState.PROPOSED, ProposalState.OFFERED_BACK),
        }
        return [(verb, label) for verb, label in VERB_LABELS.items() if can[verb]]


def lever_lines(rows: Iterable[Proposal]) -> list[LeverLine]:
    """What offered ones would change is read in one query a noun."""
    rows = list(rows)
    known = _known([edit for row in rows if not row.replaced for edit in row.edits])
    return [
        LeverLine(row, _objects(row, known), [_command(each) for each in row.commands], changed_since(row))
        for row in rows
    ]


def _known(edits: Iterable[dict[str, Any]]) -> Mapping[tuple[str, str], Document]:
    """By noun and key, the public forms of the rows that edits are about, as far as there are any."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for edit in edits:
        if edit["noun"] in KINDS and not edit["create"]:
            names[edit["noun"]].add(edit["key"])
    return {
        (kind, row.name): KINDS[kind].noun.describe(row)
        for kind, keys in names.items()
        for row in KINDS[kind].noun.queryset().filter(name__in=keys)
    }


def _objects(row: Proposal, known: Mapping[tuple[str, str], Document]) -> list[differences.Difference]:
    """Of one that was applied what it replaced, of one that is offered what stands now beside what it would write."""
    shown = row.replaced or [_beside(edit, known.get((edit["noun"], edit["key"]))) for edit in row.edits]
    return [
        differences.of_values(KINDS[edit["noun"]].noun.noun, edit["key"], edit["before"], edit["after"])
        for edit in shown
        if edit["noun"] in KINDS
    ]


def _beside(edit: dict[str, Any], now: Document | None) -> dict[str, Any]:
    kind, changes = KINDS.get(edit["noun"]), edit["changes"]
    before = None if now is None or kind is None else picked(kind.noun.fields, now, changes)
    return {**edit, "before": before, "after": changes}


def _command(command: dict[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in command["arguments"].items())
    what = _("%(action)s: %(subject)s") % {"action": action_label(command["action"]), "subject": command["subject"]}
    return f"{what} ({arguments})" if arguments else what
