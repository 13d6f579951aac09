from __future__ import annotations

import pytest
from django.utils import timezone

from controlplane.alerts.models import Incident, Rule, RuleSeries
from controlplane.alerts.rule_result import Found
from controlplane.alerts.rules_api import router
from controlplane.alerts.services import evaluations
from controlplane.alerts.services.evaluations import Result
from controlplane.alerts.services.incidents import fingerprint
from controlplane.core.models import Role
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/rules", Role.VIEWER),
    Call("POST", "/rules", Role.OPERATOR),
    Call("GET", "/rules/{name}", Role.VIEWER),
    Call("PATCH", "/rules/{name}", Role.OPERATOR),
    Call("DELETE", "/rules/{name}", Role.OPERATOR),
    Call("GET", "/rules/{name}/series", Role.VIEWER),
]
RULE = {
    "name": "KvCacheFull",
    "expr": "headworks_engine_kv_cache_usage_ratio > 0.95",
    "severity": "critical",
    "labels": {"team": "serving"},
    "annotations": {"summary": "KV cache of {{ $labels.engine }} is {{ $value }} full"},
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)


@pytest.fixture
def firing(operator) -> Incident:
    """A rule of two series, one of which fires."""
    assert operator.post("/rules", RULE).status_code == 201
    (rule,) = evaluations.claim(timezone.now())
    labels = {"alertname": "KvCacheFull", "severity": "critical", "team": "serving", "engine": "e-1"}
    found = {fingerprint(labels): Found(labels, "0.97", {"engine": "e-1"})}
    evaluations.store_all([Result(rule, found, 1)], timezone.now())
    return Incident.objects.get()


def test_a_rule_is_read_as_it_was_written_with_what_its_last_evaluation_said(operator, viewer):
    operator.post("/rules", RULE)
    assert viewer.get("/rules/KvCacheFull").json() == {
        **RULE,
        "alertname": "KvCacheFull",
        "group": "rules",
        "place": 0,
        "for_ms": 0,
        "keep_firing_for_ms": 0,
        "enabled": True,
        "pack": None,
        "evaluated_at": None,
        "took_ms": None,
        "last_error": None,
        "pending": 0,
        "firing": 0,
    }


def test_a_firing_series_is_an_incident_and_is_shown(firing, viewer):
    assert firing.title == "KV cache of e-1 is 0.97 full"
    assert (firing.source, firing.severity) == ("rule", "critical")
    shown = viewer.get("/rules").json()["items"][0]
    assert (shown["pending"], shown["firing"]) == (0, 1)
    (series,) = viewer.get("/rules/KvCacheFull/series").json()["items"]
    assert (series["state"], series["value"], series["incident"]) == ("firing", "0.97", firing.pk)
    assert series["labels"]["engine"] == "e-1"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"expr": "up >"}, "/expr"),
        ({"expr": ""}, "/expr"),
        ({"expr": "up[5m]"}, "/expr"),
        ({"expr": "'text'"}, "/expr"),
        ({"expr": "limitk(1, up) > 0"}, "/expr"),
        ({"for_ms": -1}, "/for_ms"),
        ({"severity": "page"}, "/severity"),
        ({"labels": {"0x": "a"}}, "/labels/0x"),
        ({"labels": {"__name__": "a"}}, "/labels/__name__"),
        ({"labels": {"severity": "a"}}, "/labels/severity"),
        ({"labels": {"alertname": "a"}}, "/labels/alertname"),
        ({"labels": {"team": "{{ query }}"}}, "/labels/team"),
        ({"labels": {"team": "x" * 201}}, "/labels/team"),
        ({"labels": {f"l{number}": "x" for number in range(21)}}, "/labels"),
        ({"annotations": {"summary": "{{ humanize $labels.engine }}"}}, "/annotations/summary"),
        ({"alertname": "a\nb"}, "/alertname"),
        ({"alertname": "a" * 201}, "/alertname"),
        ({"group": "a\nb"}, "/group"),
        ({"place": -1}, "/place"),
        ({"annotations": {"a-b": "text"}}, "/annotations/a-b"),
        ({"name": "with space"}, "/name"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(operator, changes, path):
    answer = operator.post("/rules", {**RULE, **changes})
    assert answer.status_code == 422
    assert {problem["path"] for problem in answer.json()["problems"]} == {path}
    assert not Rule.objects.exists()


def test_what_only_an_external_server_evaluates_may_be_set_where_there_is_one(operator, monkeypatch):
    body = {**RULE, "expr": "limitk(1, up) > 0"}
    assert "limitk" in operator.post("/rules", body).json()["detail"]
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", "http://127.0.0.1:9")
    assert operator.post("/rules", body).status_code == 201
    assert operator.post("/rules", {**body, "name": "Other", "expr": "up >"}).status_code == 422


@pytest.mark.parametrize("changes", [{"enabled": False}, {"severity": "warning"}, {"labels": {}}])
def test_a_change_of_what_names_its_incidents_ends_them(firing, operator, changes):
    assert operator.patch("/rules/KvCacheFull", changes).status_code == 200
    firing.refresh_from_db()
    assert firing.state == "resolved"
    assert not RuleSeries.objects.exists()


@pytest.mark.parametrize("changes", [{"expr": "up == 0"}, {"for_ms": 60_000}, {"annotations": {}}])
def test_any_other_change_leaves_them(firing, operator, changes):
    assert operator.patch("/rules/KvCacheFull", changes).status_code == 200
    firing.refresh_from_db()
    assert firing.state == "firing"
    assert RuleSeries.objects.get().incident == firing


def test_a_deleted_rule_ends_its_incidents(firing, operator):
    assert operator.delete("/rules/KvCacheFull").status_code == 200
    firing.refresh_from_db()
    assert firing.state == "resolved"
    assert "deleted by" in firing.entries.get(kind="resolved").text


def test_a_dry_run_ends_nothing(firing, operator):
    operator.delete("/rules/KvCacheFull?dry_run=true")
    firing.refresh_from_db()
    assert firing.state == "firing"
