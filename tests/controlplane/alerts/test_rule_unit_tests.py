"""Unit tests of rules: the verdict of each file is that of a real promtool, whether it passes or fails."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.rule_file import unit_run
from controlplane.alerts.rule_file.fields import WITH_RECORDING, checked
from controlplane.alerts.rule_file.series_notation import labels_of, values_of
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rule_file.unit_fields import checked_tests
from controlplane.alerts.rule_file.unit_run import is_asked_ahead, run
from controlplane.alerts.rule_file.unit_text import lines_of, run_file
from controlplane.core.errors import Malformed, Refused
from controlplane.core.yaml_text import write_yaml
from controlplane.telemetry.promql.errors import TimedOut
from tests.services import service_binary

RULES = """
groups:
- name: engines
  rules:
  - alert: Full
    expr: kv > 0.9
    for: 2m
    keep_firing_for: 3m
    labels: {severity: page, where: "{{ $labels.node }}/{{ $labels.engine | toUpper }}", gone: ""}
    annotations: {summary: "{{ $labels.engine }} is at {{ $value | humanizePercentage }}"}
  - alert: Full
    expr: kv > 0.99
    labels: {severity: info, engine: "{{ $labels.nothing }}"}
  - alert: Absent
    expr: absent(kv{engine="e-9"})
    for: 1m
- name: recorded
  interval: 30s
  rules:
  - {record: "node:kv:max", expr: max by (node) (kv), labels: {level: node}}
  - {alert: NodeFull, expr: "node:kv:max > 0.9", annotations: {}}
  - {alert: Always, expr: vector(1) > 0, for: 90s}
"""
SERIES: list[dict[str, Any]] = [
    {"series": 'kv{node="n-1",engine="e-1"}', "values": "0.95x3 0.1 0.1 0.1 0.1 0.995x3"},
    {"series": 'kv{node="n-1",engine="e-2"}', "values": "0.1+0.1x8 _x3 stale 0.95"},
    {"series": 'tokens_total{node="n-2"}', "values": "100+60x20"},
    {"series": "{__name__='odd', node='n-3'}", "values": "-1 +2 Inf NaN 1e3 9-1x3"},
]
E1 = {"node": "n-1", "engine": "e-1", "severity": "page", "where": "n-1/E-1"}
E1_FULL = {"exp_labels": E1, "exp_annotations": {"summary": "e-1 is at 95%"}}


def alerts(time: str, name: str, *expected: dict[str, Any]) -> dict[str, Any]:
    return {"alert_rule_test": [{"eval_time": time, "alertname": name, "exp_alerts": list(expected)}]}


def expr(time: str, text: str, *samples: tuple[str, Any]) -> dict[str, Any]:
    expected = [{"labels": labels, "value": value} for labels, value in samples]
    return {"promql_expr_test": [{"eval_time": time, "expr": text, "exp_samples": expected}]}


def given_series(series: str, values: str = "1") -> dict[str, Any]:
    return {"tests": [{"input_series": [{"series": series, "values": values}]}]}


NODE = {"exp_labels": {"node": "n-1", "level": "node"}}
# Each is one file of one test; the second member whether it passes.
CASES: list[tuple[dict[str, Any], bool]] = [
    (alerts("1m", "Full"), True),
    (alerts("2m", "Full", E1_FULL), True),
    (alerts("2m", "Full"), False),
    (alerts("2m59s", "Full", E1_FULL), True),
    (alerts("2m", "Full", E1_FULL, E1_FULL), False),
    (alerts("2m", "Full", {**E1_FULL, "exp_annotations": {"summary": "e-1 is at 0.95"}}), False),
    (alerts("2m", "Full", {**E1_FULL, "exp_labels": {**E1, "severity": "warning"}}), False),
    (alerts("2m", "Full", {"exp_labels": E1}), False),
    # keep_firing_for: absent from 4m on, and so until 6m.
    (alerts("6m", "Full", E1_FULL), True),
    (alerts("7m", "Full"), True),
    (alerts("8m", "Full", {"exp_labels": {"node": "n-1", "severity": "info"}}), True),
    (alerts("0m", "Absent"), True),
    (alerts("1m", "Absent", {"exp_labels": {"engine": "e-9"}}), True),
    (alerts("1m", "Absent", {"exp_labels": {}}), False),
    (alerts("1m", "NotThere"), True),
    (alerts("1m", "NotThere", {}), False),
    (alerts("0m", "NodeFull", NODE), True),
    (alerts("5m", "NodeFull", NODE), False),
    (alerts("2m", "Always", {}), True),
    (alerts("1m", "Always"), True),
    (expr("1m", "kv > 0.5", ('kv{engine="e-1", node="n-1"}', 0.95)), True),
    (expr("1m", "kv > 0.5"), False),
    (expr("1m", "kv > 0.5", ('kv{engine="e-1", node="n-1"}', 0.951)), False),
    (expr("1m", "kv > 0.5", ('kv{engine="e-1"}', 0.95)), False),
    (expr("10m", "rate(tokens_total[270s]) * 60", ('{node="n-2"}', 60)), True),
    (expr("3m", "node:kv:max", ('node:kv:max{level="node",node="n-1"}', 0.95)), True),
    (expr("2m", "odd", ('odd{node="n-3"}', float("inf"))), True),
    (expr("2m", "odd", ('odd{node="n-3"}', float("-inf"))), False),
    (expr("8m", "sum(odd)", ("{}", 6)), True),
    (expr("0m", "1 + 1", ("{}", 2)), True),
    (expr("12m", 'kv{engine="e-2"}'), True),
    (expr("13m", 'kv{engine="e-2"}', ('kv{engine="e-2",node="n-1"}', 0.95)), True),
    ({**alerts("2m", "Full", E1_FULL), "interval": "30s"}, False),
    ({**alerts("90s", "Full", E1_FULL), "interval": "30s"}, False),
    ({**alerts("2m", "Full", E1_FULL), "external_labels": {"cluster": "a"}, "name": "named"}, True),
]


def written(folder: Path, cases: list[tuple[dict[str, Any], bool]]) -> list[Path]:
    (folder / "rules.yml").write_text(RULES)
    files = []
    for number, (case, _) in enumerate(cases):
        files.append(folder / f"test-{number}.yml")
        test = {"interval": "1m", "input_series": SERIES, **case}
        files[-1].write_text(write_yaml({"rule_files": ["rules.yml"], "tests": [test]}))
    return files


def by_promtool(files: list[Path]) -> list[bool]:
    command: list[str | Path] = [service_binary("promtool"), "test", "rules", *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    said = re.findall(r"Unit Testing:  (\S+)\n  (SUCCESS|FAILED)", done.stdout)
    assert [name for name, _ in said] == [str(file) for file in files], done.stdout
    return [verdict == "SUCCESS" for _, verdict in said]


def by_us(file: Path) -> bool:
    verdicts = run_file(
        file.read_bytes(), lambda names: {name: (file.parent / name).read_bytes() for name in names}, 60
    )
    return not any(verdict.failures for verdict in verdicts)


def test_every_verdict_is_promtools(tmp_path):
    files = written(tmp_path, CASES)
    expected = [passes for _, passes in CASES]
    assert by_promtool(files) == expected
    assert [by_us(file) for file in files] == expected


# As other projects write them: queries in templates, a severity of their own, keep_firing_for.
FOREIGN = """
groups:
- name: foreign
  rules:
  - alert: RemoteWriteDesiredShards
    expr: max_over_time(desired_shards{job="prometheus"}[270s]) > max_over_time(max_shards{job="prometheus"}[270s])
    for: 2m
    keep_firing_for: 3m
    labels: {severity: page, fleet: '{{ query "count(max_shards)" | first | value | printf "%.0f" }}'}
    annotations:
      description: >-
        {{ $labels.instance }} desires {{ $value | humanize }} shards, more than
        {{ printf `max_shards{instance="%s"}` $labels.instance | query | first | value }}.
      others: '{{ range query "max_shards" | sortByLabel "instance" }}{{ .Labels.instance }}={{ .Value }} {{ end }}'
      none: '{{ range query "a" }}x{{ else }}nobody{{ end }}{{ with query "a" }}x{{ else }}, nothing{{ end }}'
      one: >-
        {{ with query "max_shards" | sortByLabel "job" | first }}{{ .Value | humanize }} {{ .Labels.job }}
        {{ . | label "job" | title }}{{ end }}
      all: 'LABELS = {{ $labels }}{{ with query "max_shards" }}{{ sortByLabel "job" . | first | value }}{{ end }}'
"""
SHARDS = [
    {"series": 'desired_shards{job="prometheus",instance="b:9090"}', "values": "5x3 25x4 5x10"},
    {"series": 'max_shards{job="prometheus",instance="b:9090"}', "values": "20x20"},
    {"series": 'max_shards{job="other",instance="a:9090"}', "values": "7x20"},
]
FOREIGN_ALERT = {
    "exp_labels": {"job": "prometheus", "instance": "b:9090", "severity": "page", "fleet": "2"},
    "exp_annotations": {
        "description": "b:9090 desires 25 shards, more than 20.",
        "others": "a:9090=7 b:9090=20 ",
        "none": "nobody, nothing",
        "one": "7 other Other",
        "all": "LABELS = map[instance:b:9090 job:prometheus]7",
    },
}


def test_rules_of_other_projects_have_promtools_verdict(tmp_path):
    files = []
    (tmp_path / "rules.yml").write_text(FOREIGN)
    for time in ("4m", "5m", "6m", "7m", "12m", "14m", "15m", "16m", "17m"):
        files.append(tmp_path / f"test-{time}.yml")
        test = {"interval": "1m", "input_series": SHARDS, **alerts(time, "RemoteWriteDesiredShards", FOREIGN_ALERT)}
        files[-1].write_text(write_yaml({"rule_files": ["rules.yml"], "tests": [test]}))
    expected = by_promtool(files)
    assert set(expected) == {True, False}
    assert [by_us(file) for file in files] == expected


def test_rules_that_are_asked_for_all_moments_at_once_say_the_same(tmp_path, monkeypatch):
    assert is_asked_ahead(
        [rule for group in checked(read_yaml(RULES.encode()), WITH_RECORDING) for rule in group.rules]
    )
    monkeypatch.setattr(unit_run, "is_asked_ahead", lambda rules: False)
    assert [by_us(file) for file in written(tmp_path, CASES)] == [passes for _, passes in CASES]


@pytest.mark.parametrize(
    ("rules", "ahead"),
    [
        ("[{record: 'a:b:c', expr: d}, {alert: A, expr: 'a:b:c > 1'}]", True),
        ("[{alert: A, expr: 'a:b:c > 1'}, {record: 'a:b:c', expr: d}]", False),
        ("[{alert: A, expr: 'rate(a:b:c[5m]) > 1'}, {record: 'a:b:c', expr: d}]", False),
        ("[{alert: A, expr: '{__name__=~\"a:.*\"} > 1'}, {record: 'a:b:c', expr: d}]", False),
        ("[{alert: A, expr: '{x=\"y\"} > 1'}, {record: 'a:b:c', expr: d}]", False),
        ("[{record: 'a:b:c', expr: 'a:b:c or vector(1)'}]", False),
        ("[{alert: A, expr: 'd @ 60 > 1'}]", False),
        ("[{alert: A, expr: 'd offset -1m > 1'}]", False),
        ("[{alert: A, expr: 'd offset 1m > 1'}, {record: 'a:b:c', expr: d}]", True),
    ],
)
def test_what_depends_on_the_order_of_evaluations_is_asked_step_by_step(rules, ahead):
    (group,) = checked(read_yaml(f"groups: [{{name: a, rules: {rules}}}]".encode()), WITH_RECORDING)
    assert is_asked_ahead(group.rules) == ahead


def verdict_of(tests: dict[str, Any], rules: str = RULES) -> list[dict[str, Any]]:
    groups = checked(read_yaml(rules.encode()), WITH_RECORDING)
    file = checked_tests(read_yaml(write_yaml(tests).encode()))
    return [verdict.document() for verdict in run(file, groups, 60)]


def test_a_failure_says_what_was_expected_and_what_came():
    test = {"input_series": SERIES, "name": "kv", **alerts("2m", "Full")}
    (verdict,) = verdict_of({"tests": [test]})
    (failure,) = verdict["failures"]
    assert (verdict["name"], verdict["passed"]) == ("kv", False)
    assert (failure["alertname"], failure["time"], failure["expected"]) == ("Full", "2m", [])
    assert failure["got"] == [{"labels": {**E1, "alertname": "Full"}, "annotations": E1_FULL["exp_annotations"]}]
    groups = checked(read_yaml(RULES.encode()), WITH_RECORDING)
    lines = list(lines_of(run(checked_tests(read_yaml(write_yaml({"tests": [test]}).encode())), groups, 60)))
    assert lines[0] == "    kv: alertname Full, at 2m"
    assert lines[1] == "        expected: nothing"
    assert 'engine="e-1"' in lines[3]


def test_a_rule_without_a_result_ends_its_test_with_the_reason():
    rules = "groups: [{name: a, rules: [{alert: B, expr: 'a * on() b'}]}]"
    series = [{"series": f'{name}{{x="{x}"}}', "values": "1x5"} for name in "ab" for x in "12"]
    (verdict,) = verdict_of({"tests": [{"input_series": series, **alerts("1m", "B")}]}, rules)
    (failure,) = verdict["failures"]
    assert (failure["rule"], failure["time"]) == ("B", "0s")
    assert "many-to-many" in failure["error"]


def test_groups_are_evaluated_in_the_order_that_is_asked_for():
    rules = """
groups:
- {name: later, rules: [{record: "b:b:b", expr: "a:a:a"}]}
- {name: first, rules: [{record: "a:a:a", expr: vector(1)}]}
"""
    test = {"tests": [expr("0m", "b:b:b", ("b:b:b", 1))]}
    assert not verdict_of(test, rules)[0]["passed"]
    assert verdict_of({**test, "group_eval_order": ["first", "later"]}, rules)[0]["passed"]


@pytest.mark.parametrize(
    ("tests", "path", "says"),
    [
        ({"test": []}, "/test", "no such field"),
        ({"evaluation_interval": "0s"}, "/evaluation_interval", "longer than 0"),
        ({"group_eval_order": ["a", "a"]}, "/group_eval_order", "twice"),
        ({"tests": [{"fuzzy_compare": "true"}]}, "/tests/0/fuzzy_compare", "not permitted"),
        (given_series("up{"), "/tests/0/input_series/0/series", "give a series"),
        (given_series('up{a=~"b"}'), "/tests/0/input_series/0/series", "give a series"),
        (given_series("{}"), "/tests/0/input_series/0/series", "at least 1"),
        (given_series("up", "1 b"), "/tests/0/input_series/0/values", "'b' is not known"),
        (given_series("up", "0x200000"), "/tests/0/input_series/0/values", "more than"),
        ({"evaluation_interval": "1s", "tests": [alerts("1d", "A")]}, "/tests/0", "evaluations"),
        ({"tests": [{"alert_rule_test": [{"eval_time": "1m"}]}]}, "/tests/0/alert_rule_test/0/alertname", "required"),
        ({"tests": [expr("1m", "up >")]}, "/tests/0/promql_expr_test/0/expr", "query"),
        ({"tests": [expr("1m", "up", ("up", "x"))]}, "/tests/0/promql_expr_test/0/exp_samples/0/value", "a number"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_test_is_refused_where_it_stands(tests, path, says):
    with pytest.raises(Refused) as refused:
        checked_tests(read_yaml(write_yaml(tests).encode()))
    (problem,) = refused.value.problems
    assert problem.path == path
    assert says in problem.message


def test_a_series_that_is_given_twice_fails():
    series = [{"series": "up", "values": "1"}] * 2
    (verdict,) = verdict_of({"tests": [{"input_series": series}]})
    assert "twice" in verdict["failures"][0]["error"]


def test_a_run_that_takes_too_long_is_ended():
    groups = checked(read_yaml(RULES.encode()), WITH_RECORDING)
    file = checked_tests(read_yaml(write_yaml({"tests": [alerts("100m", "Full")]}).encode()))
    with pytest.raises(TimedOut):
        run(file, groups, -1)


@given(text=st.text("0123456789+-x_. eEinfaNtsl", max_size=20))
def test_a_notation_is_read_or_refused_and_nothing_else(text):
    try:
        values = values_of(text)
    except ValueError:
        return
    assert all(value is None or isinstance(value, float) for value in values)


@pytest.mark.parametrize("text", ["up offset 1m", "up[5m]", "sum(up)", "up @ 5"])
def test_what_is_no_series_is_refused(text):
    with pytest.raises(ValueError, match="give a series"):
        labels_of(text)


def test_rest_runs_a_file_on_rules_that_are_given_or_stored(viewer, operator):
    test = write_yaml({"rule_files": ["r.yml"], "tests": [{"input_series": SERIES, **alerts("2m", "Full", E1_FULL)}]})
    answer = viewer.post("/rules-file/test", {"test": test, "rule_files": {"r.yml": RULES}})
    assert answer.json() == {"passed": True, "tests": [{"name": "test 1", "passed": True, "failures": []}]}
    missing = viewer.post("/rules-file/test", {"test": test, "rule_files": {}})
    assert missing.json()["problems"][0]["message"] == "the text of 'r.yml' is not given"
    bad = viewer.post("/rules-file/test", {"test": test, "rule_files": {"r.yml": "groups: [{}]"}})
    assert bad.json()["detail"].startswith("r.yml: /groups/0/name")
    operator.post("/rules", {"name": "Hot", "expr": "kv > 0.94", "severity": "critical"})
    expected = {"exp_labels": {"node": "n-1", "engine": "e-1", "severity": "critical"}}
    stored = write_yaml({"tests": [{"input_series": SERIES, **alerts("0m", "Hot", expected)}]})
    assert viewer.post("/rules-file/test", {"test": stored}).json()["passed"]


def test_yaml_that_cannot_be_read_is_refused():
    with pytest.raises(Malformed):
        run_file(b"tests: [", lambda names: {}, 1)
