"""Files of unit tests of rules, in the form of `promtool test rules`.

Source: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts.rule_file import series_notation
from controlplane.alerts.rule_file.fields import Duration
from controlplane.core import fields as f
from controlplane.telemetry.expressions import Expression
from wire.problems import Problem

TESTS_MAX, SERIES_MAX, CASES_MAX, EVALUATIONS_MAX = 500, 2000, 1000, 20_000
_DEFAULT_INTERVAL_MS = 60_000
_NOT_FINITE = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


def _parsed(read: Any) -> Any:
    def parse(given: Any) -> Any:
        try:
            return read(given) if isinstance(given, str) else given
        except ValueError as error:
            raise PydanticCustomError("form", "{message}", {"message": str(error)}) from error

    return parse


def _number(text: str) -> float:
    try:
        return float(_NOT_FINITE.get(text.lower(), text))
    except ValueError:
        raise ValueError("give a number") from None


def _absent_as(default: Any) -> Any:
    # A key without a value is read as an empty text.
    return lambda given: default if given == "" else given


def _not_zero(duration_ms: int) -> int:
    if not duration_ms:
        raise PydanticCustomError("range", "give a duration longer than 0")
    return duration_ms


Interval = Annotated[Duration, AfterValidator(_not_zero)]
Texts = Annotated[dict[f.Text, f.Text], BeforeValidator(_absent_as({}))]
Series = Annotated[dict[str, str], BeforeValidator(_parsed(series_notation.labels_of))]
Values = Annotated[list[float | None], BeforeValidator(_parsed(series_notation.values_of))]


class SeriesFields(f.Fields):
    series: Annotated[Series, Field(min_length=1)]
    values: Values


class AlertFields(f.Fields):
    exp_labels: Texts = Field(default_factory=dict)
    exp_annotations: Texts = Field(default_factory=dict)


class AlertCaseFields(f.Fields):
    """Which alerts of a name fire at a time."""

    eval_time: Duration = 0
    alertname: Annotated[f.Text, Field(min_length=1)]
    exp_alerts: Annotated[list[AlertFields], BeforeValidator(_absent_as([]))] = Field(default_factory=list)


class SampleFields(f.Fields):
    labels: Series = Field(default_factory=dict)
    value: Annotated[float, BeforeValidator(_parsed(_number))] = 0.0


class ExprCaseFields(f.Fields):
    """What an expression gives at a time."""

    expr: Expression
    eval_time: Duration = 0
    exp_samples: Annotated[list[SampleFields], BeforeValidator(_absent_as([]))] = Field(default_factory=list)


class TestFields(f.Fields):
    """Series, and what is expected of the rules on them. External labels count in templates that are refused here."""

    name: f.Text = ""
    interval: Interval | None = None
    input_series: Annotated[list[SeriesFields], Field(max_length=SERIES_MAX), BeforeValidator(_absent_as([]))] = Field(
        default_factory=list
    )
    alert_rule_test: Annotated[list[AlertCaseFields], Field(max_length=CASES_MAX), BeforeValidator(_absent_as([]))] = (
        Field(default_factory=list)
    )
    promql_expr_test: Annotated[list[ExprCaseFields], Field(max_length=CASES_MAX), BeforeValidator(_absent_as([]))] = (
        Field(default_factory=list)
    )
    external_labels: Texts = Field(default_factory=dict)
    external_url: f.Text = ""

    @property
    def last_ms(self) -> int:
        """Of its last case."""
        times = [case.eval_time for case in self.alert_rule_test] + [case.eval_time for case in self.promql_expr_test]
        return max(times, default=0)


class TestFileFields(f.Fields):
    rule_files: Annotated[list[f.Text], BeforeValidator(_absent_as([]))] = Field(default_factory=list)
    evaluation_interval: Interval = _DEFAULT_INTERVAL_MS
    group_eval_order: Annotated[list[f.Text], BeforeValidator(_absent_as([]))] = Field(default_factory=list)
    tests: Annotated[list[TestFields], Field(max_length=TESTS_MAX), BeforeValidator(_absent_as([]))] = Field(
        default_factory=list
    )


def checked_tests(document: object) -> TestFileFields:
    """Raises Refused with every problem."""
    if not isinstance(document, dict):
        raise f.refused([Problem("/", "type", "give a map with `tests`")])
    file = f.read(TestFileFields, {name: value for name, value in document.items() if value != ""})
    problems = [
        Problem("/group_eval_order", "unique", f"group {name!r} is named twice")
        for name in sorted({name for name in file.group_eval_order if file.group_eval_order.count(name) > 1})
    ]
    problems += [
        Problem(f"/tests/{place}", "too_long", f"more than {EVALUATIONS_MAX} evaluations until its last eval_time")
        for place, test in enumerate(file.tests)
        if test.last_ms // file.evaluation_interval >= EVALUATIONS_MAX
    ]
    f.refuse_if(problems)
    return file
