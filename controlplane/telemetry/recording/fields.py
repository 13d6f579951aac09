"""What people may give as recording rules, in the form of a Prometheus rule file."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import promql_parser as ast
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.telemetry.expressions import LABELS_MAX, Expression, LabelName, LabelValue
from wire.canonical import Document
from wire.problems import Problem

GROUPS_MAX, RULES_MAX = 50, 500
INTERVAL_MIN, INTERVAL_MAX = timedelta(seconds=10), timedelta(hours=1)
# Two colons at least: the first says by which labels it is told apart, the last what was done. No engine or exporter
# names its own series so.
_RECORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*:[a-zA-Z0-9_:]+:[a-zA-Z0-9_]+")


def _record(name: str) -> str:
    if not _RECORD.fullmatch(name):
        raise PydanticCustomError(
            "record", "give level:metric:operations, such as pool:headworks_gateway_requests:rate1m"
        )
    return name


def _interval(text: str) -> str:
    says = "give a duration of whole seconds from 10s to 1h, such as 1m"
    try:
        interval = ast.parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise PydanticCustomError("duration", says) from error
    if not INTERVAL_MIN <= interval <= INTERVAL_MAX or interval.microseconds:
        raise PydanticCustomError("range", says)
    return text


class RuleFields(f.Fields):
    """As Prometheus' recording rule."""

    record: Annotated[f.Text, Field(max_length=200), AfterValidator(_record)]
    expr: Expression
    labels: Annotated[dict[LabelName, LabelValue], Field(max_length=LABELS_MAX)] = Field(default_factory=dict)


class GroupFields(f.Fields):
    """Rules that are evaluated one after the other, every `interval`."""

    name: Annotated[f.Text, Field(min_length=1, max_length=200)]
    interval: Annotated[f.Text, Field(max_length=32), AfterValidator(_interval)] | None = None
    rules: Annotated[list[RuleFields], Field(max_length=RULES_MAX)]


class RecordingFields(f.Fields):
    """A rule file."""

    groups: Annotated[list[GroupFields], Field(max_length=GROUPS_MAX)]


def checked(document: object) -> Document:
    """The document in its plain form: only what is set. Raises Refused with every problem, each at its place."""
    if not isinstance(document, dict):
        raise f.refused([Problem("/", "type", "give a map with `groups`")])
    rules = f.read(RecordingFields, document)
    count = sum(len(group.rules) for group in rules.groups)
    if count > RULES_MAX:
        raise f.refused([Problem("/groups", "too_long", f"{count} rules; give at most {RULES_MAX} in all")])
    f.refuse_if(_repeated(rules))
    return rules.model_dump(exclude_defaults=True)


def identity(record: str, labels: dict[str, str]) -> tuple[object, ...]:
    """What tells a rule's series from those of every other rule."""
    return record, *sorted(labels.items())


def _repeated(rules: RecordingFields) -> list[Problem]:
    problems = []
    names: set[str] = set()
    known: set[tuple[object, ...]] = set()
    for place, group in enumerate(rules.groups):
        if group.name in names:
            problems.append(Problem(f"/groups/{place}/name", "unique", "another group has this name"))
        names.add(group.name)
        for number, rule in enumerate(group.rules):
            if (key := identity(rule.record, rule.labels)) in known:
                says = "another rule records the same series; set labels that tell them apart"
                problems.append(Problem(f"/groups/{place}/rules/{number}/record", "unique", says))
            known.add(key)
    return problems
