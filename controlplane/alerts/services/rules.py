"""The only writer of alerting rules. They are no part of the configuration: the worker evaluates them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

from django.db.models import Count
from django.utils import timezone
from msgspec import Meta
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts import models as rows
from controlplane.alerts.annotation import refusal
from controlplane.alerts.services import alerts
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import PAGE_ROWS, Noun, page_of
from controlplane.telemetry.expressions import LABEL_VALUE_MAX_CHARACTERS, LABELS_MAX, Expression, LabelName
from wire.canonical import Document
from wire.problems import Problem

LIKE_RULE_NAME = f.Like(
    Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.:-]{0,62}$(?!\n)")],
    "give 1 to 63 of letters, digits and _ . : -, the first a letter",
)
# Set by the rule itself.
RESERVED_LABELS = ("alertname", "severity")
ANNOTATIONS_MAX, ANNOTATION_MAX_CHARACTERS = 20, 2000
# Of rules that were given none.
GROUP = "rules"
TITLE_MAX_CHARACTERS, PLACE_MAX = 200, 100_000


def _free_label_name(name: str) -> str:
    if name in RESERVED_LABELS:
        raise PydanticCustomError("reserved", "the rule sets this label itself, by its name and severity")
    return name


def _one_line(text: str) -> str:
    if "\n" in text:
        raise PydanticCustomError("line", "give one line")
    return text


def _template(text: str) -> str:
    if message := refusal(text):
        raise PydanticCustomError("template", "{message}", {"message": message})
    return text


# An empty one takes the label away, as in Prometheus.
LabelTemplate = Annotated[f.Text, Field(max_length=LABEL_VALUE_MAX_CHARACTERS), AfterValidator(_template)]
Labels = Annotated[
    dict[Annotated[LabelName, AfterValidator(_free_label_name)], LabelTemplate], Field(max_length=LABELS_MAX)
]
Title = Annotated[f.Text, Field(max_length=TITLE_MAX_CHARACTERS), AfterValidator(_one_line)]
Place = Annotated[int, f.Like(Annotated[int, Meta(ge=0, le=PLACE_MAX)])]
Template = Annotated[f.Text, Field(max_length=ANNOTATION_MAX_CHARACTERS), AfterValidator(_template)]
Annotations = Annotated[dict[LabelName, Template], Field(max_length=ANNOTATIONS_MAX)]


class RuleFields(f.Fields):
    """As Prometheus' alerting rule. The annotation `summary` is the incident's title, where there is one.

    `alertname`: empty is the rule's name. `group` and `place`: where it stands in a rule file.
    """

    alertname: Title = f.default_of(rows.Rule, "alertname")
    group: Title = f.default_of(rows.Rule, "group")
    place: Place = f.default_of(rows.Rule, "place")
    expr: Expression
    for_ms: f.Millis = f.default_of(rows.Rule, "for_ms")
    keep_firing_for_ms: f.Millis = f.default_of(rows.Rule, "keep_firing_for_ms")
    severity: Annotated[rows.Severity, Field(strict=False)] = f.default_of(rows.Rule, "severity")
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    enabled: bool = f.default_of(rows.Rule, "enabled")


class RuleNoun(Noun[rows.Rule]):
    noun = "rule"
    row = rows.Rule
    fields = RuleFields
    name_like = LIKE_RULE_NAME

    def describe(self, row: rows.Rule) -> Document:
        fields = {name: getattr(row, name) for name in RuleFields.model_fields}
        return {"name": row.name, **fields, "alertname": alertname_of(row), "group": row.group or GROUP}

    def assign(self, row: rows.Rule, values: Document) -> list[Problem]:
        # What follows from the name is not stored beside it.
        own = {"alertname": row.name, "group": GROUP}
        return super().assign(row, {name: "" if value == own.get(name) else value for name, value in values.items()})

    def touch(self, unit: UnitOfWork, row: rows.Rule, name: str) -> None:
        """Nothing of it is compiled: targets evaluate no rules."""

    def delete(self, unit: UnitOfWork, name: str) -> None:
        _forget_series(self.lock(name), f"its rule was deleted by {unit.actor.name}: {unit.reason}")
        super().delete(unit, name)

    def _save(self, unit: UnitOfWork, row: rows.Rule, name: str, before: Document) -> rows.Rule:
        """What changes the series' labels makes other incidents of them; all else leaves them, as with Prometheus."""
        after = self.describe(row)
        if not row.enabled or any(before[field] != after[field] for field in ("alertname", "labels", "severity")):
            _forget_series(row, f"its rule was changed by {unit.actor.name}: {unit.reason}")
        row.due_at = None
        return super()._save(unit, row, name, before)


RULES = RuleNoun()


def alertname_of(rule: rows.Rule) -> str:
    """The label of its alerts."""
    return rule.alertname or rule.name


def _forget_series(rule: rows.Rule, text: str) -> None:
    now = timezone.now()
    alerts.resolve_alerts(list(rule.series.exclude(alert=None).values_list("alert", flat=True)), now, text)
    rule.series.all().delete()


def shown(found: Sequence[rows.Rule]) -> list[Document]:
    """The public form with what the last evaluation said."""
    series = rows.RuleSeries.objects.filter(rule__in=found).values("rule").order_by()
    counted = series.annotate(active=Count("pk"), firing=Count("incident"))
    numbers = {each["rule"]: (each["active"], each["firing"]) for each in counted}
    return [_with_state(rule, *numbers.get(rule.pk, (0, 0))) for rule in found]


def grouped() -> list[tuple[str, list[Document]]]:
    """All rules as `shown`, by group, in their order."""
    rules = sorted(rows.Rule.objects.all(), key=lambda rule: (rule.group or GROUP, rule.place, rule.name))
    found = shown(rules)
    return [(group, list(each)) for group, each in groupby(found, key=lambda rule: str(rule["group"]))]


def _with_state(rule: rows.Rule, active: int, firing: int) -> Document:
    return {
        **RULES.describe(rule),
        "pack": rule.pack or None,
        "evaluated_at": f.iso(rule.evaluated_at),
        "took_ms": rule.took_ms,
        "last_error": rule.last_error or None,
        "pending": active - firing,
        "firing": firing,
    }


def page_series(name: str, limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.RuleSeries], int | None]:
    """The series that are pending or fire, in the order in which they came. Raises NotFound."""
    found = RULES.get(name).series.filter(pk__gt=after).order_by("pk")
    return page_of(found, limit, lambda series: series.pk)


def describe_series(series: rows.RuleSeries) -> Document:
    return {
        "labels": series.labels,
        "annotations": series.annotations,
        "value": series.value,
        "state": "pending" if series.incident_id is None else "firing",
        "active_since": f.iso(series.active_since),
        "absent_since": f.iso(series.absent_since),
        "incident": series.incident_id,
    }
