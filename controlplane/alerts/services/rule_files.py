"""Rules as one rule file of Prometheus: written out, and taken in with what that creates, changes and removes."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.rule_file.durations import written
from controlplane.alerts.rule_file.fields import ALERTS, SEVERITY, AlertFields, GroupFields, checked
from controlplane.alerts.services.rules import GROUP, LIKE_RULE_NAME, RULES, alertname_of
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from wire.canonical import Document
from wire.problems import MAX_PROBLEMS, Problem

_NAME_MAX_CHARACTERS = 63
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")


def document() -> Document:
    """All rules that are on: groups by name, the rules of each in their order."""
    groups: dict[str, list[Document]] = defaultdict(list)
    for rule in sorted(rows.Rule.objects.filter(enabled=True), key=_order):
        groups[rule.group or GROUP].append(described(rule))
    return {"groups": [{"name": name, "rules": rules} for name, rules in sorted(groups.items())]}


def described(rule: rows.Rule) -> Document:
    """A rule as it stands in a rule file."""
    durations = {"for": rule.for_ms, "keep_firing_for": rule.keep_firing_for_ms}
    return {
        "alert": alertname_of(rule),
        "expr": rule.expr,
        **{name: written(duration_ms) for name, duration_ms in durations.items() if duration_ms},
        "labels": {SEVERITY: rule.severity, **rule.labels},
        **({"annotations": rule.annotations} if rule.annotations else {}),
    }


@dataclass
class Taken:
    """What a file led to: names of rules. `left` ones were so already."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def document(self) -> Document:
        return {"created": self.created, "changed": self.changed, "removed": self.removed, "left": self.left}


def take(unit: UnitOfWork, given: object, *, replace: bool = False, skip: bool = False) -> Taken:
    """Make the rules of a file: a rule of the same group and `alert` is changed, another one created.

    `replace`: rules of the file's groups that it does not have are removed, but those that are switched off, which no
    file has. `skip`: what cannot be read is left out; warnings tell the first of it. Raises Refused with every problem.
    """
    if skip and replace:
        raise f.refused([Problem("/skip", "alone", "give skip or replace: what is left out would be removed")])
    left_out: list[Problem] = []
    groups = checked(given, dataclasses.replace(ALERTS, left_out=left_out) if skip else ALERTS)
    _warn_of_left_out(unit, left_out)
    taken, names = Taken(), Names(RULES.keys())
    for group in groups:
        held = list(rows.Rule.objects.select_for_update().filter(group="" if group.name == GROUP else group.name))
        pairs = _paired(alerts_of(group), sorted(held, key=_order))
        for (alert, row), place in zip(pairs, _places(pairs), strict=True):
            fields = {**fields_of(alert), "group": group.name, "place": place}
            _put(unit, names, alert, row, fields, taken)
        kept = {row.pk for _, row in pairs if row is not None}
        if replace:
            taken.removed += _removed(unit, [row for row in held if row.enabled and row.pk not in kept])
        _warn_of_interval(unit, group)
    return taken


def alerts_of(group: GroupFields) -> list[AlertFields]:
    return [rule for rule in group.rules if isinstance(rule, AlertFields)]


def fields_of(alert: AlertFields) -> Document:
    """The fields of a rule that a file's rule has; without a severity it has the default."""
    fields = alert.model_dump()
    labels = fields["labels"]
    return {
        **{name: fields[name] for name in ("expr", "for_ms", "keep_firing_for_ms", "annotations")},
        "alertname": alert.alert,
        "severity": labels.get(SEVERITY) or f.default_of(rows.Rule, SEVERITY),
        "labels": {name: text for name, text in labels.items() if name != SEVERITY},
    }


class Names:
    """Names for rules that a file brings: the alert's where it can be one and is free, else with a number."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def new(self, alertname: str) -> str:
        base = _NOT_IN_NAMES.sub("-", alertname)[:_NAME_MAX_CHARACTERS]
        if LIKE_RULE_NAME.refusal(base):
            base = f"rule-{base}"[:_NAME_MAX_CHARACTERS]
        name = next(name for name in _numbered(base) if name not in self._taken)
        self._taken.add(name)
        return name


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base[: _NAME_MAX_CHARACTERS - len(str(number)) - 1]}-{number}"
        number += 1


_Pair = tuple[AlertFields, rows.Rule | None]


def _paired(alerts: Sequence[AlertFields], held: Sequence[rows.Rule]) -> list[_Pair]:
    """Each rule of a file with the row that it is about. Of several with one `alert` those that are most alike."""
    left: dict[str, list[rows.Rule]] = defaultdict(list)
    for row in held:
        left[alertname_of(row)].append(row)
    found: dict[int, rows.Rule] = {}
    # First what is the same, then what differs in its expression, its severity, and else by order.
    for likeness in (_same, _same_expr, _same_severity, _same_alert):
        for number, alert in enumerate(alerts):
            like = [row for row in left[alert.alert] if likeness(alert, row)]
            if number not in found and like:
                found[number] = like[0]
                left[alert.alert].remove(like[0])
    return [(alert, found.get(number)) for number, alert in enumerate(alerts)]


def _same(alert: AlertFields, row: rows.Rule) -> bool:
    return _same_expr(alert, row) and _same_severity(alert, row) and alert.for_ms == row.for_ms


def _same_expr(alert: AlertFields, row: rows.Rule) -> bool:
    return alert.expr == row.expr


def _same_severity(alert: AlertFields, row: rows.Rule) -> bool:
    return alert.labels.get(SEVERITY) == row.severity


def _same_alert(alert: AlertFields, row: rows.Rule) -> bool:
    return alert.alert == alertname_of(row)


def _places(pairs: Sequence[_Pair]) -> Iterator[int]:
    """A place for each, such that they stand in the file's order; those that are in order stay where they are."""
    last = (-1, "")
    for alert, row in pairs:
        key = _order(row) if row is not None else (last[0] + 1, alert.alert)
        if key <= last:
            key = (last[0] + 1, key[1])
        yield key[0]
        last = key


def _order(rule: rows.Rule) -> tuple[int, str]:
    return rule.place, rule.name


def _put(
    unit: UnitOfWork, names: Names, alert: AlertFields, row: rows.Rule | None, fields: Document, taken: Taken
) -> None:
    if row is None:
        taken.created.append(RULES.create(unit, names.new(alert.alert), fields).name)
        return
    before = RULES.describe(row)
    same = all(before[name] == value for name, value in fields.items())
    (taken.left if same else taken.changed).append(row.name)
    if not same:
        RULES.update(unit, row.name, fields)


def _removed(unit: UnitOfWork, gone: Sequence[rows.Rule]) -> list[str]:
    for row in gone:
        RULES.delete(unit, row.name)
    return [row.name for row in gone]


def _warn_of_left_out(unit: UnitOfWork, left_out: Sequence[Problem]) -> None:
    """A warning for each of the first ones, and one that counts the others."""
    first = left_out[:MAX_PROBLEMS]
    unit.warnings += [Problem(each.path, each.rule, f"left out: {each.message}") for each in first]
    if (more := len(left_out) - MAX_PROBLEMS) > 0:
        says = f"left out: {more} more, which are not named"
        unit.warnings.append(Problem("/groups", "too_many", says))


def _warn_of_interval(unit: UnitOfWork, group: GroupFields) -> None:
    seconds = settings_rows.RULE_INTERVAL_SECONDS.read()
    if group.interval not in (None, seconds * 1000):
        says = f"group {group.name!r}: its interval is not kept; every rule is evaluated every {seconds} s"
        unit.warnings.append(Problem("/groups", "interval", says))
