"""Unit tests of rules on our own engine: its PromQL on samples in memory, and the states of series as in production.

Verdicts are those of `promtool test rules` (prometheus/cmd/promtool/unittest.go, version 3): rules are evaluated from 0
on at each interval, and a case looks at the evaluation at its time or the last before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import promql_parser as ast

from controlplane import settings_rows
from controlplane.alerts.annotation import asks
from controlplane.alerts.rule_file.durations import written
from controlplane.alerts.rule_file.fields import AlertFields as AlertRule
from controlplane.alerts.rule_file.fields import GroupFields, RecordFields
from controlplane.alerts.rule_file.scratch import Scratch
from controlplane.alerts.rule_file.unit_fields import AlertCaseFields, ExprCaseFields, TestFields, TestFileFields
from controlplane.alerts.rule_queries import RuleQueries
from controlplane.alerts.rule_result import BadResult, found_in
from controlplane.alerts.rule_state import Active, step
from controlplane.core.fields import from_epoch_ms
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import QueryError, TimedOut
from controlplane.telemetry.promql.grammar import matchers_of, parse, selector_of
from controlplane.telemetry.promql.values import Identity, identity
from controlplane.telemetry.results import Sample, number
from wire.canonical import Document
from wire.write_body import METRIC_NAME, STALE

SAMPLES_MAX = 500_000_000
# `@`, and an offset into what comes.
_NAMES_MOMENTS = re.compile(r"@|offset\s*-", re.IGNORECASE)
_One = TypeVar("_One")


@dataclass(frozen=True)
class Shown:
    """An alert that fires, as a case expects it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def document(self) -> Document:
        return {"labels": dict(self.labels), "annotations": dict(self.annotations)}

    def key(self) -> tuple[object, ...]:
        return tuple(sorted(self.labels.items())), tuple(sorted(self.annotations.items()))


@dataclass
class Verdict:
    """Of one test: nothing failed, or what did. Each failure says what was expected and what came."""

    name: str
    failures: list[Document] = field(default_factory=list)

    def document(self) -> Document:
        return {"name": self.name, "passed": not self.failures, "failures": self.failures}


def run(file: TestFileFields, groups: Sequence[GroupFields], seconds: float) -> list[Verdict]:
    """The verdict of each test of a file, on these groups. Raises TimedOut where all together take longer."""
    ordered = _ordered(groups, file.group_eval_order)
    budget = Budget(SAMPLES_MAX, seconds)
    return [
        _Run(test, ordered, file.evaluation_interval, budget).verdict(test.name or f"test {number}")
        for number, test in enumerate(file.tests, 1)
    ]


def _ordered(groups: Sequence[GroupFields], names: Sequence[str]) -> list[GroupFields]:
    """Groups that are not named come first, as they stand."""
    places = {name: place for place, name in enumerate(names)}
    return sorted(groups, key=lambda group: places.get(group.name, -1))


def is_asked_ahead(rules: Sequence[AlertRule | RecordFields]) -> bool:
    """Whether each rule can be asked for all moments at once: none reads what itself or a later one records, and none
    says of which moment it is, nor asks in its texts."""
    if any(asks(text) for rule in rules if isinstance(rule, AlertRule) for text in _texts(rule)):
        return False
    recorded = [rule.record if isinstance(rule, RecordFields) else "" for rule in rules]
    for place, rule in enumerate(rules):
        later = [name for name in recorded[place:] if name]
        if _NAMES_MOMENTS.search(rule.expr) or any(reads(rule.expr, name) for name in later):
            return False
    return True


def _texts(rule: AlertRule) -> Iterator[str]:
    yield from rule.labels.values()
    yield from rule.annotations.values()


def reads(expr: str, name: str) -> bool:
    """Whether one of an expression's selectors can choose series of this name."""
    found = False

    def look(tree: ast.Expr) -> bool:
        nonlocal found
        if (selector := selector_of(tree)) is not None and not isinstance(tree, ast.ParenExpr):
            of_name = [matcher for matcher in matchers_of(selector) if matcher.name == METRIC_NAME]
            found = found or all(matcher.holds(name) for matcher in of_name)
        return True

    ast.walk(parse(expr), look)
    return found


@dataclass
class _Alerting:
    rule: AlertRule
    active: dict[str, Active] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)

    def take(self, scratch: Scratch, at_ms: int, samples: Sequence[Sample]) -> None:
        series_max = settings_rows.RULE_SERIES_MAX.read()
        ask = RuleQueries(lambda promql: scratch.instant(promql, at_ms))
        found = found_in(
            samples, self.rule.alert, self.rule.labels, series_max, annotations=self.rule.annotations, ask=ask
        )
        self.active = step(
            self.active,
            {name: one.value for name, one in found.items()},
            from_epoch_ms(at_ms),
            pending_for=timedelta(milliseconds=self.rule.for_ms),
            keep_firing_for=timedelta(milliseconds=self.rule.keep_firing_for_ms),
        )
        last = {name: Shown(one.labels, one.rendered(self.rule.annotations)) for name, one in found.items()}
        self.shown = {name: last.get(name) or self.shown[name] for name in self.active}

    def firing(self) -> Iterator[Shown]:
        return (self.shown[name] for name, active in self.active.items() if active.firing)


@dataclass
class _Recording:
    rule: RecordFields
    labels: dict[Identity, dict[str, str]] = field(default_factory=dict)

    def take(self, scratch: Scratch, at_ms: int, samples: Sequence[Sample]) -> None:
        named = {METRIC_NAME: self.rule.record, **self.rule.labels}
        found = [({**sample.labels, **named}, sample.value) for sample in samples]
        labels = {identity(each): each for each, _ in found}
        if len(labels) < len(found):
            raise BadResult("vector contains metrics with the same labelset after applying rule labels")
        for gone in self.labels.keys() - labels.keys():
            scratch.record(self.labels[gone], at_ms, STALE)
        for each, value in found:
            scratch.record(each, at_ms, value)
        self.labels = labels


class _Run:
    """One test: its series, the rules on them from evaluation to evaluation, and its cases on the way."""

    def __init__(self, test: TestFields, groups: Sequence[GroupFields], interval_ms: int, budget: Budget) -> None:
        self._test, self._interval_ms, self._budget = test, interval_ms, budget
        self._given = [rule for group in groups for rule in group.rules]
        self._times = range(0, test.last_ms + 1, interval_ms)
        self._failures: list[Document] = []
        self._begin()

    def verdict(self, name: str) -> Verdict:
        try:
            ahead = self._asked_ahead() if is_asked_ahead(self._given) else None
        except TimedOut:
            raise
        except (QueryError, BadResult):
            # One step after the other says which rule it is, and when.
            ahead = None
        if ahead is None:
            self._begin()
        cases = sorted(self._test.alert_rule_test, key=lambda case: case.eval_time)
        for place, at_ms in enumerate(self._times):
            if not self._evaluated(at_ms, None if ahead is None else ahead[place]):
                return Verdict(name, self._failures)
            while cases and cases[0].eval_time < at_ms + self._interval_ms:
                self._judge_alerts(cases.pop(0))
        for case in self._test.promql_expr_test:
            self._judge_expr(case)
        return Verdict(name, self._failures)

    def _begin(self) -> None:
        self._failures.clear()
        self._scratch = Scratch(self._budget)
        for one in self._test.input_series:
            if not self._scratch.fill(one.series, one.values, self._test.interval or self._interval_ms):
                self._failures.append({"error": f"the series {one.series} is there twice"})
        self._rules: list[_Alerting | _Recording] = [
            _Alerting(rule) if isinstance(rule, AlertRule) else _Recording(rule) for rule in self._given
        ]

    def _asked_ahead(self) -> list[dict[int, list[Sample]]]:
        """What each alerting rule, by its place, finds at each moment, each asked once for all of them."""
        self._scratch.now_ms = self._times[-1]
        ahead: list[dict[int, list[Sample]]] = [{} for _ in self._times]
        for place, rule in enumerate(self._rules):
            answers = self._scratch.ranged(rule.rule.expr, self._times)
            for at_ms, samples, found in zip(self._times, answers, ahead, strict=True):
                if isinstance(rule, _Recording):
                    rule.take(self._scratch, at_ms, samples)
                else:
                    found[place] = samples
        return ahead

    def _evaluated(self, at_ms: int, ahead: Mapping[int, list[Sample]] | None) -> bool:
        """False where a rule has no result: what comes after would not mean anything."""
        self._scratch.now_ms = at_ms
        errors = []
        for place, rule in enumerate(self._rules):
            if ahead is not None and place not in ahead:
                continue
            try:
                samples = self._scratch.instant(rule.rule.expr, at_ms) if ahead is None else ahead[place]
                rule.take(self._scratch, at_ms, samples)
            except TimedOut:
                raise
            except (QueryError, BadResult) as error:
                name = rule.rule.alert if isinstance(rule, _Alerting) else rule.rule.record
                errors.append({"rule": name, "time": written(at_ms), "error": str(error)})
        self._failures += errors
        return not errors

    def _judge_alerts(self, case: AlertCaseFields) -> None:
        named = (rule for rule in self._rules if isinstance(rule, _Alerting) and rule.rule.alert == case.alertname)
        got = sorted((alert for rule in named for alert in rule.firing()), key=Shown.key)
        expected = sorted(
            (Shown({**one.exp_labels, "alertname": case.alertname}, one.exp_annotations) for one in case.exp_alerts),
            key=Shown.key,
        )
        about = {"alertname": case.alertname, "time": written(case.eval_time)}
        self._compare(about, expected, got, Shown.document)

    def _judge_expr(self, case: ExprCaseFields) -> None:
        about = {"expr": case.expr, "time": written(case.eval_time)}
        try:
            samples = self._scratch.instant(case.expr, case.eval_time)
        except TimedOut:
            raise
        except QueryError as error:
            self._failures.append({**about, "error": str(error)})
            return
        got = sorted((identity(sample.labels), sample.value) for sample in samples)
        expected = sorted((identity(sample.labels), sample.value) for sample in case.exp_samples)
        self._compare(about, expected, got, lambda one: {"labels": dict(one[0]), "value": number(one[1])})

    def _compare(
        self, about: Document, expected: Sequence[_One], got: Sequence[_One], document: Callable[[_One], Document]
    ) -> None:
        if expected != got:
            shown = {"expected": [document(one) for one in expected], "got": [document(one) for one in got]}
            self._failures.append({**about, **shown})
