"""Prometheus' HTTP API of rules and alerts, from our rows, on the embedded store and an external server alike.

Source: prometheus/web/api/v1/api.go, version 3.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import promql_parser as ast

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.services.rules import GROUP, alertname_of
from controlplane.telemetry import settings_rows as telemetry_rows
from controlplane.telemetry.http_api import Found, answering
from controlplane.telemetry.parameters import Parameters
from controlplane.telemetry.promql.errors import BadQuery
from controlplane.telemetry.recording import rules as recording
from controlplane.telemetry.recording.fields import identity
from controlplane.telemetry.results import number
from controlplane.telemetry.store.matching import Matcher
from wire.canonical import Document

# What Prometheus names the files of groups; ours have none.
ALERTING_FILE, RECORDING_FILE = "rules", "recording-rules"
_NEVER = "0001-01-01T00:00:00Z"
_ALERTING, _RECORDING = "alert", "record"
_KINDS = {_ALERTING: "alerting", _RECORDING: "recording"}
_FIRING, _PENDING, _INACTIVE = "firing", "pending", "inactive"


class _Group(NamedTuple):
    file: str
    name: str
    interval_seconds: float
    rules: list[Document]

    def document(self) -> Document:
        return {
            "name": self.name,
            "file": self.file,
            "rules": self.rules,
            "interval": self.interval_seconds,
            "limit": 0,
            "evaluationTime": sum(rule["evaluationTime"] for rule in self.rules),
            "lastEvaluation": max((rule["lastEvaluation"] for rule in self.rules), default=_NEVER),
        }

    @property
    def token(self) -> str:
        return hashlib.sha256(f"{self.file};{self.name}".encode()).hexdigest()


@answering(None, "GET")
def rules(parameters: Parameters) -> Found:
    """Groups with their rules, and the alerts of these."""
    asked = _Asked(parameters)
    groups = [*_alerting_groups(asked.with_alerts), *_recording_groups()]
    chosen = [
        group._replace(rules=found)
        for group in groups
        if asked.takes_group(group) and (found := [rule for rule in group.rules if asked.takes(rule)])
    ]
    page, following = asked.page(sorted(chosen, key=lambda group: (group.file, group.name)))
    token = {"groupNextToken": following} if following else {}
    return Found({"groups": [group.document() for group in page], **token})


@answering(None, "GET")
def alerts(parameters: Parameters) -> Found:
    """The alerts that are pending or fire."""
    series = rows.RuleSeries.objects.filter(rule__enabled=True).order_by("rule", "pk")
    return Found({"alerts": [_alert(one) for one in series]})


class _Asked:
    """What a caller wants to see of the rules. Raises BadQuery."""

    def __init__(self, parameters: Parameters) -> None:
        kind = parameters.text("type").lower()
        if kind not in ("", *_KINDS):
            raise BadQuery(f'invalid parameter "type": not supported value {kind!r}')
        self._kind = _KINDS.get(kind, "")
        self._names, self._groups, self._files = (
            set(parameters.given(f"{name}[]")) for name in ("rule_name", "rule_group", "file")
        )
        self._selectors: Sequence[Sequence[Matcher]] = parameters.selectors(needed=False)
        self.with_alerts = not _flag(parameters, "exclude_alerts")
        self._limit = parameters.whole_number("group_limit", -1)
        self._token = parameters.text("group_next_token")
        if parameters.text("group_limit") and self._limit <= 0:
            raise BadQuery('invalid parameter "group_limit": group_limit needs to be greater than 0')
        if self._token and self._limit < 0:
            raise BadQuery('invalid parameter "group_limit": group_limit needs to be provided with group_next_token')

    def takes_group(self, group: _Group) -> bool:
        return (not self._groups or group.name in self._groups) and (not self._files or group.file in self._files)

    def takes(self, rule: Document) -> bool:
        if self._kind not in ("", rule["type"]) or (self._names and rule["name"] not in self._names):
            return False
        labels = rule.get("labels", {})
        return not self._selectors or any(_holds(matchers, labels) for matchers in self._selectors)

    def page(self, groups: Sequence[_Group]) -> tuple[Sequence[_Group], str]:
        """The groups from the one that the token names, and the token of what follows them."""
        if self._token:
            begin = next((place for place, group in enumerate(groups) if group.token == self._token), None)
            if begin is None:
                raise BadQuery(f"invalid group_next_token '{self._token}'. were rule groups changed?")
            groups = groups[begin:]
        if 0 < self._limit < len(groups):
            return groups[: self._limit], groups[self._limit].token
        return groups, ""


def _holds(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.holds(labels.get(matcher.name, "")) for matcher in matchers)


def _flag(parameters: Parameters, name: str) -> bool:
    text = parameters.text(name)
    # As Go's strconv.ParseBool.
    if text in ("", "0", "f", "F", "false", "FALSE", "False"):
        return False
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    raise BadQuery(f'invalid parameter "{name}": give true or false, not {text!r}')


def _alerting_groups(with_alerts: bool) -> list[_Group]:
    held = rows.Rule.objects.filter(enabled=True).order_by("place", "name").prefetch_related("series")
    groups: dict[str, list[Document]] = defaultdict(list)
    for rule in held:
        groups[rule.group or GROUP].append(_alerting(rule, with_alerts))
    interval = float(settings_rows.RULE_INTERVAL_SECONDS.read())
    return [_Group(ALERTING_FILE, name, interval, found) for name, found in groups.items()]


def _alerting(rule: rows.Rule, with_alerts: bool) -> Document:
    series = sorted(rule.series.all(), key=lambda one: one.pk)
    states = {_state(one) for one in series}
    state = _FIRING if _FIRING in states else _PENDING if states else _INACTIVE
    return {
        "state": state,
        "name": alertname_of(rule),
        "query": rule.expr,
        "duration": rule.for_ms / 1000,
        "keepFiringFor": rule.keep_firing_for_ms / 1000,
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": rule.annotations,
        "alerts": [_alert(one) for one in series] if with_alerts else [],
        **_evaluated(rule.evaluated_at, rule.took_ms, rule.last_error),
        "type": _KINDS[_ALERTING],
    }


def _alert(series: rows.RuleSeries) -> Document:
    kept = {"keepFiringSince": _time(series.absent_since)} if series.absent_since else {}
    return {
        "labels": series.labels,
        "annotations": series.annotations,
        "state": _state(series),
        "activeAt": _time(series.active_since),
        **kept,
        "value": _exponent(float(series.value)),
    }


def _state(series: rows.RuleSeries) -> str:
    return _PENDING if series.incident_id is None else _FIRING


def _recording_groups() -> list[_Group]:
    states = {identity(state["record"], state["labels"]): state for state in recording.states()}
    default = f"{telemetry_rows.RECORDING_INTERVAL_SECONDS.read()}s"
    return [
        _Group(
            RECORDING_FILE,
            group["name"],
            ast.parse_duration(group.get("interval", default)).total_seconds(),
            [_recording(rule, states) for rule in group["rules"]],
        )
        for group in recording.current()["groups"]
    ]


def _recording(rule: Document, states: Mapping[tuple[object, ...], Document]) -> Document:
    labels = rule.get("labels", {})
    state = states.get(identity(rule["record"], labels), {})
    at = state.get("evaluated_at")
    evaluated = _evaluated(at and datetime.fromisoformat(at), state.get("took_ms"), state.get("last_error") or "")
    return {
        "name": rule["record"],
        "query": rule["expr"],
        **({"labels": labels} if labels else {}),
        **evaluated,
        "type": _KINDS[_RECORDING],
    }


def _evaluated(at: datetime | None, took_ms: int | None, error: str) -> Document:
    health = "unknown" if at is None else "err" if error else "ok"
    return {
        "health": health,
        **({"lastError": error} if error else {}),
        "evaluationTime": (took_ms or 0) / 1000,
        "lastEvaluation": _time(at),
    }


def _time(at: datetime | None) -> str:
    """RFC 3339, as Go writes it: without zeros at the end."""
    if at is None:
        return _NEVER
    text = at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    return f"{text.rstrip('0').rstrip('.')}Z"


def _exponent(value: float) -> str:
    """As Go's %e with as few digits as there are: 9.7e-01."""
    text = number(value)
    if text in ("NaN", "+Inf", "-Inf"):
        return text
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{'-' * sign}{mantissa[0]}{fraction}e{len(digits) + int(exponent) - 1:+03d}"
