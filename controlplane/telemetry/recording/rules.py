"""The only writer of recording rules: all of them at once, as a rule file.

Until people give rules of their own, the rows follow the built-in ones of the version that runs.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.telemetry import models as rows
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.recording.fields import checked, identity
from wire.canonical import Document, content_hash

_NOUN, _KEY = "recording rules", "all"


def current() -> Document:
    """The rules in force, in the form of a rule file."""
    if not is_edited():
        return builtin()
    groups = rows.RecordingGroup.objects.order_by("position").prefetch_related("rules")
    return {"groups": [_describe_group(group) for group in groups]}


def is_edited() -> bool:
    """Whether people gave rules in place of the built-in ones."""
    return rows.RecordingSet.objects.filter(edited=True).exists()


def replace(unit: UnitOfWork, document: object) -> Document:
    """Put these rules in place of all. Raises Refused with every problem."""
    rules = checked(document)
    held, before = _hold(), current()
    _put(rules, _now_ms())
    held.edited, held.digest = True, ""
    held.save()
    unit.record(_NOUN, _KEY, before, rules)
    return rules


def reset(unit: UnitOfWork) -> Document:
    """Go back to the built-in rules, and follow them from version to version."""
    held, before, rules = _hold(), current(), builtin()
    _put(rules, _now_ms())
    held.edited, held.digest = False, content_hash(rules)
    held.save()
    unit.record(_NOUN, _KEY, before, rules)
    return rules


def follow_builtin(now_ms: int) -> None:
    """Make the rows those of the built-in rules, due from now on, unless people gave others."""
    rules = builtin()
    digest = content_hash(rules)
    if rows.RecordingSet.objects.filter(Q(edited=True) | Q(digest=digest)).exists():
        return
    with transaction.atomic():
        held = _hold()
        if not held.edited and held.digest != digest:
            _put(rules, now_ms)
            held.digest = digest
            held.save()


def states() -> list[Document]:
    """What the last evaluation of each rule said."""
    found = rows.RecordingRule.objects.exclude(group=None).select_related("group")
    return [_state(rule) for rule in found.order_by("group__position", "position")]


def _hold() -> rows.RecordingSet:
    """The one row, held until the transaction ends, so that writers come one after the other."""
    return rows.RecordingSet.objects.select_for_update().get_or_create(pk=1)[0]


def _now_ms() -> int:
    return f.epoch_ms(timezone.now())


def _put(document: Document, now_ms: int) -> None:
    """Rules whose series stay the same keep their rows, and so know which series they have to end.

    All rows are held until the transaction ends: what a worker claims and writes meanwhile must not be undone.
    """
    groups = {group.name: group for group in rows.RecordingGroup.objects.select_for_update()}
    # Those that are in a group come last, and so count where one that is gone recorded the same.
    gone_first = rows.RecordingRule.objects.select_for_update().order_by(F("group").asc(nulls_first=True))
    rules = {identity(rule.record, rule.labels): rule for rule in gone_first}
    for position, given in enumerate(document["groups"]):
        group = groups.pop(given["name"], None) or rows.RecordingGroup(name=given["name"], next_ms=now_ms)
        group.position, group.interval = position, given.get("interval", "")
        group.save()
        for place, one in enumerate(given["rules"]):
            labels = one.get("labels", {})
            rule = rules.pop(identity(one["record"], labels), None) or rows.RecordingRule(record=one["record"])
            rule.group, rule.position, rule.expr, rule.labels = group, place, one["expr"], labels
            rule.save()
    rows.RecordingRule.objects.filter(pk__in=[rule.pk for rule in rules.values()]).update(group=None)
    rows.RecordingGroup.objects.filter(pk__in=[group.pk for group in groups.values()]).delete()


def _describe_group(group: rows.RecordingGroup) -> Document:
    rules = sorted(group.rules.all(), key=lambda rule: rule.position)
    interval = {"interval": group.interval} if group.interval else {}
    return {"name": group.name, **interval, "rules": [_describe(rule) for rule in rules]}


def _describe(rule: rows.RecordingRule) -> Document:
    labels = {"labels": rule.labels} if rule.labels else {}
    return {"record": rule.record, "expr": rule.expr, **labels}


def _state(rule: rows.RecordingRule) -> Document:
    return {
        "group": rule.group.name if rule.group else "",
        "record": rule.record,
        "labels": rule.labels,
        "series": len(rule.written),
        "evaluated_at": f.iso(rule.evaluated_at),
        "took_ms": rule.took_ms,
        "last_error": rule.last_error or None,
    }
