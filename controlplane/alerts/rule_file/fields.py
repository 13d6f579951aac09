"""What may stand in a rule file of Prometheus, checked with the place of each problem in words of the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts.models import Severity
from controlplane.alerts.rule_file.durations import milliseconds
from controlplane.alerts.services.rules import Annotations, LabelTemplate, Title
from controlplane.core import fields as f
from controlplane.core.errors import Refused
from controlplane.telemetry.expressions import LABELS_MAX, Expression, LabelName
from wire.problems import Problem, cut, pointer

GROUPS_MAX, RULES_MAX = 200, 2000
_RECORDING = "a recording rule; these are written at /api/v1/recording-rules"
_ALERT, _RECORD = "alert", "record"
SEVERITY = "severity"
# As Prometheus' operator for Kubernetes keeps rule files.
_OPERATORS_KIND = "PrometheusRule"


def _duration(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return milliseconds(text)
    except ValueError as error:
        raise PydanticCustomError("duration", "{message}", {"message": str(error)}) from error


def _free(name: str) -> str:
    if name == "alertname":
        raise PydanticCustomError("reserved", "the rule sets this label itself, by `alert`")
    return name


Duration = Annotated[f.Millis, BeforeValidator(_duration)]
Labels = Annotated[dict[Annotated[LabelName, AfterValidator(_free)], LabelTemplate], Field(max_length=LABELS_MAX)]


class AlertFields(f.Fields):
    """An alerting rule, with `severity` among its labels."""

    alert: Annotated[Title, Field(min_length=1)]
    expr: Expression
    for_ms: Duration = Field(default=0, alias="for")
    keep_firing_for_ms: Duration = Field(default=0, alias="keep_firing_for")
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class RecordFields(f.Fields):
    """A recording rule, which unit tests may have beside those that they test."""

    record: Annotated[f.Text, Field(min_length=1, max_length=200, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
    expr: Expression
    labels: Annotated[dict[LabelName, f.Text], Field(max_length=LABELS_MAX)] = Field(default_factory=dict)


class GroupFields(f.Fields):
    """`interval` is read, but all rules have one interval here. `labels` are those of each rule that has no other."""

    name: Annotated[Title, Field(min_length=1)]
    interval: Duration | None = None
    labels: dict[f.Text, f.Text] = Field(default_factory=dict)
    rules: list[AlertFields | RecordFields] = Field(default_factory=list)


@dataclass(frozen=True)
class Taking:
    """What is taken of a file. `recording`: recording rules may stand beside the alerting ones. `severities`: which
    there may be; none: any. `left_out`: where given, what cannot be read is put there, and not refused."""

    recording: bool = False
    severities: Collection[str] = ()
    left_out: list[Problem] | None = None


ALERTS = Taking(severities=Severity.values)
WITH_RECORDING = Taking(recording=True)


def checked(document: object, taking: Taking = ALERTS) -> list[GroupFields]:
    """The groups of a file, also as the PrometheusRule of a Kubernetes cluster has them.

    Raises Refused with every problem, each at its place and with the group's and rule's name.
    """
    if isinstance(document, dict) and document.get("kind") == _OPERATORS_KIND:
        document = document.get("spec")
    if not isinstance(document, dict) or not isinstance(document.get("groups"), list):
        raise f.refused([Problem("/", "type", "give a map with `groups`, a list")])
    problems = [
        Problem(pointer("/", name), "unknown", "no such field; there is groups")
        for name in document
        if name != "groups"
    ]
    unreadable = problems if taking.left_out is None else taking.left_out
    groups: list[GroupFields] = []
    names: set[str] = set()
    for place, given in enumerate(document["groups"]):
        at = f"/groups/{place}"
        group = _read_group(given, at, unreadable, taking)
        if group and group.name in names:
            problems.append(Problem(f"{at}/name", "unique", f"another group is called {group.name!r}"))
        if group:
            names.add(group.name)
            groups.append(group)
    if len(document["groups"]) > GROUPS_MAX or sum(len(group.rules) for group in groups) > RULES_MAX:
        problems.append(Problem("/groups", "too_long", f"give at most {GROUPS_MAX} groups and {RULES_MAX} rules"))
    f.refuse_if(problems)
    return groups


def _read_group(given: Any, at: str, problems: list[Problem], taking: Taking) -> GroupFields | None:
    """The group with those of its rules that can be read; what is wrong is added to `problems`."""
    if not isinstance(given, dict):
        problems.append(Problem(at, "type", "give a map with `name` and `rules`"))
        return None
    rules = given.get("rules", "")
    # Without a value it is read as an empty text.
    rules = [] if rules == "" else rules
    called = cut(f"group {given.get('name')!r}")
    group = _read(GroupFields, {**given, "rules": []}, at, called, problems)
    if not isinstance(rules, list):
        problems.append(Problem(f"{at}/rules", "type", f"{called}: give a list"))
        return None
    shared = group.labels if group else {}
    read = list(_read_rules([_labelled(rule, shared) for rule in rules], at, called, problems, taking))
    return group.model_copy(update={"rules": read}) if group else None


def _labelled(rule: Any, shared: dict[str, str]) -> Any:
    """A rule with the labels of its group, under its own."""
    own = rule.get("labels") if isinstance(rule, dict) else None
    if not shared or not isinstance(rule, dict) or not isinstance(own or {}, dict):
        return rule
    return {**rule, "labels": {**shared, **(own or {})}}


def _read_rules(
    rules: list[Any], at: str, called: str, problems: list[Problem], taking: Taking
) -> Iterator[AlertFields | RecordFields]:
    for number, given in enumerate(rules):
        place = f"{at}/rules/{number}"
        if not isinstance(given, dict):
            problems.append(Problem(place, "type", f"{called}: give a map with `alert` and `expr`"))
            continue
        is_record = _RECORD in given
        name = cut(f"{called}, rule {given.get(_RECORD if is_record else _ALERT)!r}")
        if is_record and not taking.recording:
            problems.append(Problem(place, "recording", f"{name}: {_RECORDING}"))
            continue
        kind: type[AlertFields] | type[RecordFields] = RecordFields if is_record else AlertFields
        rule = _read(kind, given, place, name, problems)
        if rule is not None and _has_severity(rule, taking.severities, place, name, problems):
            yield rule


def _has_severity(
    rule: AlertFields | RecordFields, known: Collection[str], at: str, called: str, problems: list[Problem]
) -> bool:
    given = rule.labels.get(SEVERITY)
    if not known or given is None or given in known:
        return True
    problems.append(Problem(f"{at}/labels/{SEVERITY}", "enum", f"{called}: give {', '.join(known)}, not {given!r}"))
    return False


def _read(
    kind: type[f.FieldsT], given: dict[str, Any], at: str, called: str, problems: list[Problem]
) -> f.FieldsT | None:
    # What stands there without a value is as if it did not.
    given = {name: value for name, value in given.items() if value != ""}
    before = len(problems)
    known = [field.alias or name for name, field in kind.model_fields.items()]
    unknown = [name for name in given if name not in known]
    problems += [
        Problem(pointer(at, name), "unknown", f"{called}: no such field; there are {', '.join(known)}")
        for name in unknown
    ]
    try:
        read = f.read(kind, {name: value for name, value in given.items() if name in known})
        return read if len(problems) == before else None
    except Refused as refused:
        for problem in refused.problems:
            problems.append(Problem(at + problem.path.rstrip("/"), problem.rule, f"{called}: {problem.message}"))
    return None
