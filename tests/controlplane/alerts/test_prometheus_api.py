"""Rules and alerts in Prometheus' JSON, field by field beside what a real Prometheus answers for the same rules."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from django.test import Client

from controlplane.alerts.models import Rule
from controlplane.alerts.prometheus_api import _exponent, _time
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services import rule_files
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import Role
from controlplane.core.yaml_text import write_yaml
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.recording import loop as recording_loop
from controlplane.telemetry.recording import rules as recording
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from tests.controlplane.telemetry.upstreams import RealServer
from tests.services import wait_for
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, encode

pytestmark = pytest.mark.django_db
RULES = """
groups:
- name: engines
  rules:
  - alert: Full
    expr: kv > 0.9
    labels: {severity: critical, team: serving}
    annotations: {summary: "{{ $labels.engine }} is at {{ $value }}"}
  - {alert: Slow, expr: kv > 0.5, for: 1h, keep_firing_for: 5m, labels: {severity: warning}}
  - {alert: Quiet, expr: kv > 2, labels: {severity: info}}
- name: others
  rules:
  - {alert: Broken, expr: kv * on () kv, labels: {severity: info}}
"""
_RECORDING_RULE = {"record": "node:kv:max", "expr": "max by (node) (kv)"}
RECORDED = {"groups": [{"name": "fleet", "interval": "10s", "rules": [_RECORDING_RULE]}]}
# What two processes cannot have in common.
OWN = {"file", "interval", "evaluationTime", "lastEvaluation", "activeAt", "lastError"}


@pytest.fixture(autouse=True)
def _own_store(settings, tmp_path):
    settings.DATA_DIR = tmp_path / "data"


@pytest.fixture
def ask(rest_of):
    client: Client = rest_of(Role.VIEWER).client

    def ask(path: str, **asked: Any) -> Any:
        answer = client.get(f"/prometheus/api/v1/{path}?{urlencode(asked, doseq=True)}")
        return answer.json()["data"] if answer.status_code == 200 else (answer.status_code, answer.json())

    return ask


@pytest.fixture
def ruled() -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        rule_files.take(unit, read_yaml(RULES.encode()))
        recording.replace(unit, RECORDED)


def samples(at_ms: int) -> list[Any]:
    return [named("kv", [(at_ms, value)], engine=engine) for engine, value in (("e-1", 0.97), ("e-2", 0.75))]


def plain(value: Any) -> Any:
    """Without what is each one's own; lists of alerts and rules by their text."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in OWN}
    if isinstance(value, list):
        return sorted((plain(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


def keys_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: keys_of(each) for name, each in value.items()}
    return [keys_of(each) for each in value] if isinstance(value, list) else None


def test_all_fields_are_those_of_a_real_prometheus(ask, ruled, tmp_path: Path, monkeypatch, settings):
    server = RealServer("prometheus", tmp_path)
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "recording.yml").write_text(write_yaml(RECORDED))
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yml", "recording.yml"]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    now_ms = int(time.time() * 1000)
    store(store_path(), samples(now_ms - 1000), Owner("node", "n-1"))
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    assert evaluate_due(lambda: now) == 4
    recording_loop.evaluate_due(lambda: now + timedelta(seconds=60))

    def theirs(path: str) -> Any:
        with urlopen(f"{server.base}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    with server.running():
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
        body = encode(samples(int(time.time() * 1000)))
        urlopen(Request(server.settings["HEADWORKS_REMOTE_WRITE_URL"], body, headers)).close()

        def evaluated() -> bool:
            rules = [rule for group in theirs("rules")["groups"] for rule in group["rules"]]
            return len(theirs("alerts")["alerts"]) == 3 and {rule["health"] for rule in rules} == {"ok", "err"}

        wait_for(evaluated, 30, "an evaluation with the samples")
        rules, alerts = theirs("rules"), theirs("alerts")
        assert plain(ask("rules")) == plain(rules)
        assert plain(ask("alerts")) == plain(alerts)
        # The same rules on the external server alone, and none of them twice.
        settings.DATA_DIR = tmp_path / "nothing"
        monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", server.base)
        assert evaluate_due(lambda: now + timedelta(seconds=20)) == 4
    assert plain(ask("rules")) == plain(rules)
    assert plain(ask("alerts")) == plain(alerts)
    # Also those that are each one's own are there, under the same names.
    ours = {group["name"]: group for group in ask("rules")["groups"]}
    for group in rules["groups"]:
        assert ours[group["name"]].keys() == group.keys()
        for own, other in zip(ours[group["name"]]["rules"], group["rules"], strict=True):
            assert own.keys() == other.keys(), own["name"]
    assert {frozenset(alert) for alert in ask("alerts")["alerts"]} == {frozenset(alert) for alert in alerts["alerts"]}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["Broken", "Full", "Quiet", "Slow", "node:kv:max"]),
        ({"type": "alert"}, ["Broken", "Full", "Quiet", "Slow"]),
        ({"type": "record"}, ["node:kv:max"]),
        ({"rule_name[]": ["Full", "Slow", "None"]}, ["Full", "Slow"]),
        ({"rule_group[]": "others"}, ["Broken"]),
        ({"file[]": "recording-rules"}, ["node:kv:max"]),
        ({"match[]": '{severity=~"info|critical", team!="x"}'}, ["Broken", "Full", "Quiet"]),
        ({"match[]": ['{severity="warning"}', '{team="serving"}'], "rule_group[]": "engines"}, ["Full", "Slow"]),
    ],
)
def test_it_answers_what_is_asked_for(ask, ruled, asked, names):
    groups = ask("rules", **asked)["groups"]
    assert sorted(rule["name"] for group in groups for rule in group["rules"]) == names
    assert all(group["rules"] for group in groups)


def test_groups_come_page_by_page(ask, ruled):
    seen: list[str] = []
    token: dict[str, str] = {}
    for _ in range(3):
        data = ask("rules", group_limit=1, **token)
        seen += [group["name"] for group in data["groups"]]
        token = {"group_next_token": data.get("groupNextToken")}
    assert seen == ["fleet", "engines", "others"]
    assert token["group_next_token"] is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"type": "both"}, "not supported value"),
        ({"group_limit": "x"}, "group_limit"),
        ({"group_limit": "0"}, "greater than 0"),
        ({"group_next_token": "x"}, "group_next_token"),
        ({"group_limit": "1", "group_next_token": "x"}, "were rule groups changed"),
        ({"exclude_alerts": "maybe"}, "exclude_alerts"),
        ({"match[]": "{"}, "match[]"),
    ],
)
def test_what_is_no_parameter_is_refused_by_name(ask, ruled, asked, says):
    status, body = ask("rules", **asked)
    assert (status, body["status"], body["errorType"]) == (400, "error", "bad_data")
    assert says in body["error"] or "query" in body["error"]


def test_alerts_are_left_out_where_asked(ask, ruled):
    store(store_path(), samples(1_000_000), Owner("node", "n-1"))
    evaluate_due(lambda: datetime.fromtimestamp(1001, UTC))
    (full,) = ask("rules", **{"rule_name[]": "Full"})["groups"][0]["rules"]
    assert (full["state"], len(full["alerts"])) == ("firing", 1)
    (full,) = ask("rules", **{"rule_name[]": "Full", "exclude_alerts": "true"})["groups"][0]["rules"]
    assert (full["state"], full["alerts"]) == ("firing", [])


def test_a_rule_that_is_off_is_not_there(ask, ruled):
    Rule.objects.update(enabled=False)
    assert [group["name"] for group in ask("rules")["groups"]] == ["fleet"]
    assert ask("alerts") == {"alerts": []}


def test_our_rules_are_answered_beside_an_external_server(ask, ruled, monkeypatch):
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", "http://127.0.0.1:9")
    assert len(ask("rules")["groups"]) == 3


@pytest.mark.parametrize("path", ["rules", "alerts"])
def test_it_is_for_those_who_may_read_metrics(path, rest_of):
    assert rest_of(None).client.get(f"/prometheus/api/v1/{path}").status_code == 401
    for role in Role:
        assert rest_of(role).client.get(f"/prometheus/api/v1/{path}").status_code == 200
        assert rest_of(role).client.post(f"/prometheus/api/v1/{path}").status_code == 405


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1e+00"), (0.97, "9.7e-01"), (0.0, "0e+00"), (-123456.0, "-1.23456e+05"), (1e300, "1e+300"),
     (float("nan"), "NaN"), (float("inf"), "+Inf")],
)  # fmt: skip
def test_values_are_as_go_writes_them(value, text):
    assert _exponent(value) == text


def test_times_have_no_zeros_at_the_end():
    assert _time(datetime(2026, 3, 1, 12, tzinfo=UTC)) == "2026-03-01T12:00:00Z"
    assert _time(datetime(2026, 3, 1, 12, 0, 0, 120_000, tzinfo=UTC)) == "2026-03-01T12:00:00.12Z"
