"""Rules as one rule file: what goes out comes in as the same, and a real promtool takes it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.alerts.models import Rule
from controlplane.alerts.rule_file.durations import milliseconds, written
from controlplane.alerts.rule_file.fields import checked
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rules_file_api import router
from controlplane.alerts.services import rule_files
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry, Role
from controlplane.core.yaml_text import write_yaml
from tests.controlplane.conftest import Rest
from tests.controlplane.core.access import routes_of
from tests.services import service_binary
from wire.problems import MAX_PROBLEMS

pytestmark = pytest.mark.django_db
PATH = "/rules-file"
# As the field's packs are written: two rules of one alert, texts of several lines, templates among the labels.
FILE = """
groups:
- name: vllm
  interval: 30s
  rules:
  - alert: KvCacheFull
    expr: |
      headworks_engine_kv_cache_usage_ratio > 0.95
        and headworks_engine_requests_waiting > 0
    for: 1m30s
    keep_firing_for: 5m
    labels:
      severity: critical
      what: "{{ $labels.engine | toUpper }}"
    annotations:
      summary: KV cache of {{ $labels.engine }} is at {{ $value | humanizePercentage }}
      description: |
        Requests wait.

        More than a line.
  - alert: KvCacheFull
    expr: headworks_engine_kv_cache_usage_ratio > 0.9
    labels: {severity: warning}
    annotations:
  - alert: An agent is silent
    expr: up == 0
- name: nodes
  rules:
"""


def post(caller: Rest, text: str, query: str = "", content_type: str = "text/yaml") -> Any:
    path = f"/api/v1{PATH}?reason=a+test{query}"
    return caller.client.generic("POST", path, text.encode(), content_type=content_type)


def take(text: str, *, replace: bool = False) -> dict[str, list[str]]:
    with unit_of_work(SYSTEM, "a test") as unit:
        return rule_files.take(unit, read_yaml(text.encode()), replace=replace).document()


def exported() -> str:
    return write_yaml(rule_files.document())


@pytest.mark.parametrize(
    ("method", "path", "needs"),
    [("GET", PATH, Role.VIEWER), ("POST", PATH, Role.OPERATOR), ("POST", f"{PATH}/test", Role.VIEWER)],
)
def test_a_route_takes_its_role_and_no_lesser(rest_of, method, path, needs):
    assert (method, path) in routes_of(router)
    for role in (None, *Role):
        status = rest_of(role).call(method, path).status_code
        assert (status not in (401, 403)) == (role is not None and role.covers(needs)), role


def test_a_file_is_taken_in_whole(operator, viewer):
    answer = post(operator, FILE)
    assert answer.status_code == 200, answer.content
    assert answer.json()["item"] == {
        "created": ["KvCacheFull", "KvCacheFull-2", "An-agent-is-silent"],
        "changed": [],
        "removed": [],
        "left": [],
    }
    (warning,) = answer.json()["warnings"]
    assert "group 'vllm': its interval is not kept" in warning["message"]
    first = viewer.get("/rules/KvCacheFull").json()
    assert (first["alertname"], first["group"], first["severity"]) == ("KvCacheFull", "vllm", "critical")
    assert (first["for_ms"], first["keep_firing_for_ms"]) == (90_000, 300_000)
    assert first["labels"] == {"what": "{{ $labels.engine | toUpper }}"}
    assert "Requests wait.\n\nMore" in first["annotations"]["description"]
    assert viewer.get("/rules/KvCacheFull-2").json()["severity"] == "warning"
    assert viewer.get("/rules/An-agent-is-silent").json()["alertname"] == "An agent is silent"


def test_what_was_exported_changes_nothing_and_promtool_takes_it(operator, viewer, tmp_path):
    post(operator, FILE)
    answer = viewer.get(PATH)
    assert answer["Content-Type"] == "text/yaml; charset=utf-8"
    groups = yaml.safe_load(answer.content)["groups"]
    assert [rule["alert"] for rule in groups[0]["rules"]] == ["KvCacheFull", "KvCacheFull", "An agent is silent"]
    assert groups[0]["rules"][0]["labels"]["severity"] == "critical"
    assert (groups[0]["rules"][0]["for"], groups[0]["rules"][0]["keep_firing_for"]) == ("1m30s", "5m")
    again = post(operator, answer.content.decode(), "&replace=true").json()
    assert (again["changed"], again["warnings"]) == (False, [])
    assert again["item"]["left"] == ["KvCacheFull", "KvCacheFull-2", "An-agent-is-silent"]
    file = tmp_path / "rules.yml"
    file.write_bytes(answer.content)
    check = [service_binary("promtool"), "check", "rules", file]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rules found" in done.stdout


def test_a_dry_run_says_what_it_would_do_and_keeps_nothing(operator):
    answer = post(operator, FILE, "&dry_run=true").json()
    assert (answer["dry_run"], len(answer["item"]["created"])) == (True, 3)
    assert not Rule.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_changed_rule_is_changed_and_keeps_its_name(operator):
    post(operator, FILE)
    item = post(operator, FILE.replace("usage_ratio > 0.9\n", "usage_ratio > 0.8\n")).json()["item"]
    assert (item["changed"], len(item["left"])) == (["KvCacheFull-2"], 2)
    assert Rule.objects.get(name="KvCacheFull-2").expr.endswith("> 0.8")


def test_of_rules_with_one_alert_each_stays_what_it_was_when_their_order_changes(operator):
    post(operator, FILE)
    document = yaml.safe_load(FILE)
    document["groups"][0]["rules"].reverse()
    item = post(operator, yaml.safe_dump(document)).json()["item"]
    assert item["created"] == []
    assert Rule.objects.get(name="KvCacheFull").severity == "critical"
    groups = yaml.safe_load(exported())["groups"]
    assert [rule["labels"]["severity"] for rule in groups[0]["rules"]] == ["warning", "warning", "critical"]


def test_with_replace_what_a_group_of_the_file_no_longer_has_is_removed(operator):
    post(operator, FILE)
    operator.post("/rules", {"name": "Other", "expr": "up == 0"})
    operator.post("/rules", {"name": "Off", "expr": "up == 0", "group": "vllm", "enabled": False})
    document = yaml.safe_load(FILE)
    del document["groups"][0]["rules"][1]
    assert post(operator, yaml.safe_dump(document)).json()["item"]["removed"] == []
    assert post(operator, yaml.safe_dump(document), "&replace=true").json()["item"]["removed"] == ["KvCacheFull-2"]
    assert set(Rule.objects.values_list("name", flat=True)) == {"KvCacheFull", "An-agent-is-silent", "Other", "Off"}


def test_a_rule_that_is_off_is_in_no_file(operator):
    operator.post("/rules", {"name": "Off", "expr": "up == 0", "enabled": False})
    assert rule_files.document() == {"groups": []}


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("groups: [", "", "no YAML"),
        ("- a", "/", "`groups`"),
        ("{groups: [], more: 1}", "/more", "no such field"),
        ("groups: [5]", "/groups/0", "give a map"),
        ("groups: [{rules: []}]", "/groups/0/name", "Field required"),
        ("groups: [{name: a}, {name: a}]", "/groups/1/name", "another group"),
        ("groups: [{name: a, limit: 5}]", "/groups/0/limit", "group 'a': no such field; there are name, interval"),
        ("groups: [{name: a, rules: {}}]", "/groups/0/rules", "give a list"),
        ("groups: [{name: a, rules: [5]}]", "/groups/0/rules/0", "give a map"),
    ],
)
def test_what_is_no_file_is_refused_where_it_stands(operator, text, path, says):
    refused_at(operator, text, path, says)


@pytest.mark.parametrize(
    ("rule", "path", "says"),
    [
        ("{record: 'a:b:c', expr: up}", "", "group 'a', rule 'a:b:c': a recording rule"),
        ("{alert: B, expr: up, fro: 5m}", "/fro", "group 'a', rule 'B': no such field; there are alert, expr, for"),
        ("{alert: B}", "/expr", "group 'a', rule 'B': Field required"),
        ("{expr: up}", "/alert", "Field required"),
        ("{alert: B, expr: 'limitk(1, up) > 0'}", "/expr", "limitk"),
        ("{alert: B, expr: 'up >'}", "/expr", "group 'a', rule 'B'"),
        ("{alert: B, expr: up, for: 5}", "/for", "give a duration"),
        (
            "{alert: B, expr: up, labels: {severity: page}}",
            "/labels/severity",
            "rule 'B': give info, warning, critical, not 'page'",
        ),
        ("{alert: B, expr: up, labels: {alertname: C}}", "/labels/alertname", "by `alert`"),
        ("{alert: B, expr: up, annotations: {s: '{{ query }}'}}", "/annotations/s", "query takes one text"),
    ],
)
def test_what_is_not_known_is_refused_with_its_group_and_rule(operator, rule, path, says):
    refused_at(operator, f"groups: [{{name: a, rules: [{rule}]}}]", f"/groups/0/rules/0{path}", says)


def refused_at(operator: Rest, text: str, path: str, says: str) -> None:
    answer = post(operator, text)
    assert answer.status_code in (400, 422)
    told = answer.json()
    (found,) = [(one["path"], one["message"]) for one in told["problems"]] or [("", told["detail"])]
    assert found[0] == path
    assert says in found[1]
    assert not Rule.objects.exists()


# As other projects write them: recording rules beside alerts, severities of their own, links to their own pages.
FOREIGN = """
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: foreign, labels: {role: alert-rules}}
spec:
  groups:
  - name: general
    labels: {team: platform, severity: info}
    rules:
    - {record: "node:up:count", expr: count(up)}
    - {alert: Watchdog, expr: vector(1), labels: {severity: none}}
    - alert: TargetDown
      expr: 100 * (count(up == 0) by (job) / count(up) by (job)) > 10
      for: 10m
      labels: {severity: warning}
      annotations:
        description: '{{ printf "%.4g" $value }}% of {{ $labels.job | stripPort }} are down. LABELS = {{ $labels }}'
        summary: "{{ if gt $value 50.0 }}Most{{ else }}Some{{ end }} targets are down"
    - {alert: Graph, expr: up, annotations: {d: '{{ graphLink "up" }}'}}
    - {alert: Quiet, expr: absent(up), keep_firing_for: 5m}
  - {name: limited, limit: 5, rules: [{alert: Limited, expr: up}]}
"""


def test_what_other_projects_write_is_refused_whole_or_taken_but_for_what_is_left_out(operator, viewer):
    refused = post(operator, FOREIGN)
    assert refused.status_code == 422
    places = [problem["path"] for problem in refused.json()["problems"]]
    assert places == [
        "/groups/0/rules/0",
        "/groups/0/rules/1/labels/severity",
        "/groups/0/rules/3/annotations/d",
        "/groups/1/limit",
    ]
    assert not Rule.objects.exists()
    answer = post(operator, FOREIGN, "&skip=true").json()
    assert answer["item"]["created"] == ["TargetDown", "Quiet"]
    assert [each["path"] for each in answer["warnings"]] == places
    assert answer["warnings"][3]["message"].startswith("left out: group 'limited': no such field")
    assert viewer.get("/rules/TargetDown").json()["labels"] == {"team": "platform"}
    quiet = viewer.get("/rules/Quiet").json()
    assert (quiet["severity"], quiet["keep_firing_for_ms"]) == ("info", 300_000)
    again = post(operator, exported()).json()
    assert (again["changed"], again["item"]["left"]) == (False, ["TargetDown", "Quiet"])


def test_of_much_that_is_left_out_the_first_is_named_and_the_rest_counted(operator):
    rules = [{"alert": f"A{number}", "expr": "up >"} for number in range(MAX_PROBLEMS + 7)]
    document = {"groups": [{"name": "g", "rules": [*rules, {"alert": "Down", "expr": "up == 0"}]}]}
    answer = post(operator, write_yaml(document), "&skip=true").json()
    assert answer["item"]["created"] == ["Down"]
    *first, last = answer["warnings"]
    assert [each["path"] for each in first] == [f"/groups/0/rules/{number}/expr" for number in range(MAX_PROBLEMS)]
    assert last["message"] == "left out: 7 more, which are not named"


def test_a_long_name_is_not_told_whole_with_each_problem(operator):
    rules = [{"alert": f"A{number}", "expr": "up >"} for number in range(20)]
    refused = post(operator, write_yaml({"groups": [{"name": "g" * 50_000, "rules": rules}]}))
    assert len(refused.json()["problems"]) == 21
    assert len(refused.content) < 100_000


def test_what_is_left_out_removes_nothing(operator):
    answer = post(operator, FOREIGN, "&skip=true&replace=true")
    assert answer.status_code == 422
    assert "skip or replace" in answer.json()["problems"][0]["message"]


def test_labels_of_a_group_that_are_none_are_refused(operator):
    text = "groups: [{name: a, labels: 5, rules: [{alert: B, expr: up}]}]"
    refused_at(operator, text, "/groups/0/labels", "dictionary")


def test_a_file_of_another_type_is_refused_and_one_that_is_json_taken(operator):
    assert post(operator, FILE, content_type="text/plain").status_code == 415
    assert post(operator, FILE, content_type="application/json").status_code == 400
    document = {"groups": [{"name": "a", "rules": [{"alert": "B", "expr": "up == 0", "for": "5m"}]}]}
    assert post(operator, json.dumps(document), content_type="application/json").json()["item"]["created"] == ["B"]


def test_problems_of_several_rules_are_told_together():
    document = {"groups": [{"name": "a", "rules": [{"alert": "B", "expr": "up >"}, {"alert": "C", "expr": "+"}]}]}
    with pytest.raises(Refused) as refused:
        checked(document)
    assert len(refused.value.problems) == 2


@given(duration_ms=st.integers(0, 10**12) | st.integers(0, 400).map(lambda days: days * 86_400_000))
def test_a_duration_is_read_as_it_was_written(duration_ms):
    assert milliseconds(written(duration_ms)) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "-5m", "5m1h", "5 m", "1.5h", "h", "300y", "\N{ARABIC-INDIC DIGIT FIVE}m"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="give a duration"):
        milliseconds(text)


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="{}\x7f"), max_size=20)
ALERTS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Z][a-z]{0,3}", fullmatch=True),
        "alertname": st.sampled_from(["", "A", "B", "Two words"]),
        "group": st.sampled_from(["", "a", "b", "two words"]),
        "place": st.integers(0, 3),
        "expr": st.sampled_from(["up == 0", "a > 1", "sum by (node) (b) > 2\n  and c"]),
        "for_ms": st.integers(0, 10**9),
        "severity": st.sampled_from(["info", "warning", "critical"]),
        "labels": st.dictionaries(st.sampled_from(["x", "y"]), TEXT.filter(bool), max_size=2),
        "annotations": st.dictionaries(st.sampled_from(["summary", "d"]), TEXT, max_size=2),
        "enabled": st.booleans(),
    }
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=st.lists(ALERTS, max_size=6, unique_by=lambda rule: rule["name"]))
def test_whatever_rules_there_are_the_export_changes_nothing(rules):
    with transaction.atomic():
        with unit_of_work(SYSTEM, "a test") as unit:
            for rule in rules:
                RULES.create(unit, rule["name"], {**rule, "name": rule["name"]})
        before = [RULES.describe(rule) for rule in Rule.objects.order_by("pk")]
        text = exported()
        done = take(text, replace=True)
        assert (done["created"], done["changed"], done["removed"]) == ([], [], [])
        assert [RULES.describe(rule) for rule in Rule.objects.order_by("pk")] == before
        assert exported() == text
        transaction.set_rollback(True)
