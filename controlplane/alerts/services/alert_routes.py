"""The only writer of alert routes: which receivers are told of which alerts, and which alerts share an incident."""

from __future__ import annotations

from typing import Annotated, Literal

from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline.grouping import (
    ALL_LABELS,
    RULE_GROUP_BY,
    group_of,
    matched_labels,
    matching,
    receivers_of,
)
from controlplane.alerts.services import notifying
from controlplane.alerts.services.matching import Matchers
from controlplane.alerts.services.standing import routes_to_nobody, standing, timing_in
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun
from controlplane.telemetry.expressions import LABELS_MAX, LabelName
from wire.canonical import Document
from wire.problems import Problem, pointer

_DAY_MS = 86_400_000
GroupLabel = Literal["..."] | LabelName


def _groups(names: list[str]) -> list[str]:
    if ALL_LABELS in names and len(names) > 1:
        raise PydanticCustomError("group_by", '"..." means all labels, so it stands alone')
    return list(dict.fromkeys(names))


class AlertRouteFields(f.Fields):
    """Alerts that all of `matchers` match go to `receivers`, and share an incident where they have the same values of
    `group_by` ("..." alone: of all labels). No receivers: nobody is told. `goes_on`: later routes are tried, too."""

    order: Annotated[int, Field(ge=0, le=1_000_000)] = f.default_of(rows.AlertRoute, "order")
    matchers: Matchers = Field(default_factory=list)
    receivers: f.Names = Field(default_factory=list)
    group_by: Annotated[list[GroupLabel], Field(max_length=LABELS_MAX), AfterValidator(_groups)] = Field(
        default_factory=lambda: list(RULE_GROUP_BY)
    )
    group_wait_ms: Annotated[int, Field(ge=0, le=3_600_000)] = f.default_of(rows.AlertRoute, "group_wait_ms")
    group_interval_ms: Annotated[int, Field(ge=1000, le=_DAY_MS)] = f.default_of(rows.AlertRoute, "group_interval_ms")
    repeat_interval_ms: Annotated[int, Field(ge=1000, le=30 * _DAY_MS)] = f.default_of(
        rows.AlertRoute, "repeat_interval_ms"
    )
    goes_on: bool = f.default_of(rows.AlertRoute, "goes_on")
    enabled: bool = f.default_of(rows.AlertRoute, "enabled")


class AlertRouteNoun(Noun[rows.AlertRoute]):
    noun = "alert route"
    row = rows.AlertRoute
    fields = AlertRouteFields
    # GET /alert-routes/test.
    reserved_names = frozenset({"test"})

    def describe(self, row: rows.AlertRoute) -> Document:
        return {"name": row.name, **{name: getattr(row, name) for name in AlertRouteFields.model_fields}}

    def assign(self, row: rows.AlertRoute, values: Document) -> list[Problem]:
        known = set(rows.Receiver.objects.filter(name__in=values["receivers"]).values_list("name", flat=True))
        problems = [
            Problem(pointer("/receivers", index), "reference", f"receiver {name!r} does not exist")
            for index, name in enumerate(values["receivers"])
            if name not in known
        ]
        if values["repeat_interval_ms"] < values["group_interval_ms"]:
            says = "give at least group_interval_ms: nothing is looked at more often"
            problems.append(Problem("/repeat_interval_ms", "range", says))
        return problems + super().assign(row, values)

    def touch(self, unit: UnitOfWork, row: rows.AlertRoute, name: str) -> None:
        """Nothing of it is compiled: what fires is looked at anew. Incidents stay as they were grouped."""
        notifying.wake(timezone.now())

    def _created(self, unit: UnitOfWork, row: rows.AlertRoute, name: str) -> None:
        super()._created(unit, row, name)
        _warn_of_nobody(unit, row)

    def _save(self, unit: UnitOfWork, row: rows.AlertRoute, name: str, before: Document) -> rows.AlertRoute:
        saved = super()._save(unit, row, name, before)
        _warn_of_nobody(unit, saved)
        return saved


def _warn_of_nobody(unit: UnitOfWork, row: rows.AlertRoute) -> None:
    if row.name in routes_to_nobody():
        says = "none of these takes messages now: nobody is told of what matches"
        unit.warnings.append(Problem("/receivers", "off", says))


ALERT_ROUTES = AlertRouteNoun()


def tried(labels: dict[str, str], source: str) -> Document:
    """What would become of an alert of these labels now: its routes, group, receivers, and why it is mute."""
    severity = labels.get("severity", rows.Severity.WARNING)
    own = {name: value for name, value in labels.items() if name != "severity" or source == "rule"}
    laid_down, seen = standing(timezone.now()), matched_labels(own, severity)
    group = group_of(laid_down.routes, own, severity, source)
    names = receivers_of(laid_down.routes, seen, laid_down.receivers)
    reached = [
        each.name
        for each in laid_down.listeners
        if each.enabled and (names is None or each.name in names) and each.min_rank <= rows.Severity(severity).rank
    ]
    timing = timing_in(laid_down.routes, group.route)
    muted = {
        "inhibition": laid_down.inhibitors.of(seen),
        "silence": laid_down.silencers.silences_of(seen),
        "window": laid_down.silencers.windows_of(seen),
    }
    return {
        "route": group.route or None,
        "routes": [each.name for each in matching(laid_down.routes, seen)],
        "group": group.labels,
        "receivers": reached,
        "every_receiver": names is None,
        "group_wait_ms": int(timing.group_wait.total_seconds() * 1000),
        "group_interval_ms": int(timing.group_interval.total_seconds() * 1000),
        "repeat_interval_ms": int(timing.repeat_interval.total_seconds() * 1000),
        "muted_by": {kind: found for kind, found in muted.items() if found},
    }


def labels_of(texts: list[str]) -> dict[str, str]:
    """Labels given as `name=value`. Raises Refused."""
    pairs = dict(text.partition("=")[::2] for text in texts)
    labels = f.read(_Labels, {"labels": pairs}).labels
    if labels.get("severity", rows.Severity.WARNING) not in rows.Severity.values:
        says = f"give one of {', '.join(rows.Severity.values)}"
        f.refuse_if([Problem("/labels/severity", "enum", says)])
    return labels


class _Labels(f.Fields):
    labels: Annotated[dict[LabelName, Annotated[f.Text, Field(max_length=1000)]], Field(max_length=50)]
